#include "rank/model/linear_attention_cost.h"

#include <algorithm>
#include <cmath>

namespace tpsim::rank {
namespace {

constexpr double kElement = 2;                  // bytes of an activation (bf16)
constexpr double kChunk = 64;                   // tokens (FLA's CHUNK_SIZE)
constexpr double kValueBlock = 32;              // rows of a state that one thread block walks with (BV)
constexpr double kBlocksPerMultiprocessor = 4;  // of 4 warps each
// Not measured: shares of the device's rates, a kernel's start, and one step of the walk between chunks.
constexpr double kCompute = 0.35;
constexpr double kMemory = 0.75;
constexpr double kFixedSeconds = 3e-6;
constexpr double kStepSeconds = 1.5e-6;

}  // namespace

std::string to_string(LinearAttnBackend backend) {
  switch (backend) {
    case LinearAttnBackend::kTriton:
      return "triton";
    case LinearAttnBackend::kCuteDsl:
      return "cutedsl";
    case LinearAttnBackend::kFlashInfer:
      return "flashinfer";
  }
  return "";
}

GatedDeltaCosts::GatedDeltaCosts(const proto::HardwareProfile& profile, LinearAttnBackends backends)
    : backends_(backends),
      state_pool_(profile.architecture() != "hopper"),
      flops_(profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()),
      multiprocessors_(profile.multiprocessors()) {}

KernelCost GatedDeltaCosts::kernel(double flops, double bytes) const {
  return {kFixedSeconds + std::max(flops / (flops_ * kCompute), bytes / (bandwidth_ * kMemory)), flops, bytes,
          1};
}

KernelCost GatedDeltaCosts::decode(const LinearLayers& layers, double requests) const {
  const auto conv = static_cast<double>(layers.conv_dim());
  const double values = double(layers.num_v_heads) * layers.v_dim;
  const double state = double(layers.num_v_heads) * layers.k_dim * layers.v_dim;  // elements
  KernelCost cost;
  // Projections split and put together; convolution over the last tokens, whose window moves on.
  cost += kernel(0, requests * 2 * (conv + values) * kElement);
  cost += kernel(2 * requests * conv * layers.conv_kernel,
                 requests * (2 * conv * kElement + 2 * double(layers.conv_bytes())));
  // Gates, norms of q and k, decay, update and read-out of the state in one kernel.
  cost += kernel(7 * requests * state,
                 requests * (2 * double(layers.temporal_bytes()) + (conv + values) * kElement));
  if (backends_.decode == LinearAttnBackend::kFlashInfer && !state_pool_) {
    // The states gathered, and scattered.
    for (int i = 0; i < 2; ++i) cost += kernel(0, requests * 2 * double(layers.temporal_bytes()));
  }
  cost += kernel(0, requests * 3 * values * kElement);  // gated norm
  return cost;
}

KernelCost GatedDeltaCosts::extend(const LinearLayers& layers, std::span<const std::uint32_t> lens) const {
  double tokens = 0;
  for (const std::uint32_t length : lens) tokens += length;
  const auto requests = static_cast<double>(lens.size());
  const auto conv = static_cast<double>(layers.conv_dim());
  const double heads = layers.num_v_heads;
  const double v = layers.v_dim;
  KernelCost cost = kernel(0, tokens * 2 * (conv + heads * v) * kElement);  // split and put together
  cost += kernel(2 * tokens * conv * layers.conv_kernel,
                 tokens * 2 * conv * kElement + requests * 2 * double(layers.conv_bytes()));
  cost += backends_.prefill == LinearAttnBackend::kFlashInfer ? chunks_of_flashinfer(layers, lens)
                                                              : chunks_of_triton(layers, lens);
  cost += kernel(0, tokens * 3 * heads * v * kElement);  // gated norm
  return cost;
}

namespace {

struct Chunks {
  double tokens = 0, count = 0, longest = 0;
};

Chunks chunks_of(std::span<const std::uint32_t> lens) {
  Chunks chunks;
  for (const std::uint32_t length : lens) {
    const double of_request = std::ceil(length / kChunk);
    chunks.tokens += length;
    chunks.count += of_request;
    chunks.longest = std::max(chunks.longest, of_request);
  }
  return chunks;
}

}  // namespace

KernelCost GatedDeltaCosts::chunks_of_triton(const LinearLayers& layers,
                                             std::span<const std::uint32_t> lens) const {
  const auto [tokens, chunks, longest] = chunks_of(lens);
  const auto requests = static_cast<double>(lens.size());
  const double heads = layers.num_v_heads;
  const double k = layers.k_dim;
  const double v = layers.v_dim;
  const double keys = 2.0 * layers.num_k_heads * k;  // and queries
  KernelCost cost;
  const auto elementwise = [&](double bytes) { cost += kernel(0, bytes); };
  // q, k and v are cut out of one tensor, and copied for it.
  for (const double width : {keys / 2, keys / 2, heads * v}) elementwise(tokens * 2 * width * kElement);
  elementwise(tokens * heads * (2 * kElement + 2 * 4));               // decay and beta
  for (int i = 0; i < 2; ++i) elementwise(tokens * keys * kElement);  // norms of q and k
  elementwise(tokens * heads * 2 * 4);                                // decays added up
  // Within a chunk: keys by keys, the triangular system solved, w and u.
  cost += kernel(chunks * heads * kChunk * kChunk * (2 * k + kChunk + 2 * k + 2 * v),
                 tokens * (keys / 2 + heads * (2 * v + k)) * kElement);
  // From chunk to chunk, a block of each state's rows at a time; every chunk's state is written.
  KernelCost walk = kernel(chunks * heads * 4 * kChunk * k * v,
                           (tokens * (keys / 2 + heads * (k + 2 * v)) + chunks * heads * k * v) * kElement +
                               requests * 2 * double(layers.temporal_bytes()));
  const double blocks = std::ceil(v / kValueBlock) * heads * requests;
  const double waves = std::ceil(blocks / (kBlocksPerMultiprocessor * multiprocessors_));
  walk.seconds = std::max(walk.seconds, kFixedSeconds + longest * waves * kStepSeconds);
  cost += walk;
  // Outputs from the states and from within the chunk.
  cost += kernel(chunks * heads * kChunk * (2 * k * v + 2 * kChunk * (k + v)),
                 (tokens * (keys + heads * 2 * v) + chunks * heads * k * v) * kElement);
  return cost;
}

KernelCost GatedDeltaCosts::chunks_of_flashinfer(const LinearLayers& layers,
                                                 std::span<const std::uint32_t> lens) const {
  const auto [tokens, chunks, longest] = chunks_of(lens);
  const auto requests = static_cast<double>(lens.size());
  const double heads = layers.num_v_heads;
  const double k = layers.k_dim;
  const double v = layers.v_dim;
  const double keys = 2.0 * layers.num_k_heads * k;  // and queries
  const double states = requests * double(layers.temporal_bytes());
  KernelCost cost;
  const auto elementwise = [&](double bytes) { cost += kernel(0, bytes); };
  elementwise(tokens * 2 * (keys + heads * v) * kElement);  // q, k and v cut out, q and k normed
  elementwise(tokens * heads * (2 * kElement + 2 * 4));     // decay and beta
  elementwise(tokens * heads * 2 * 4);                      // exp of the decay
  elementwise(2 * states);                                  // states gathered
  // A thread block walks over the chunks of one head of one request.
  KernelCost walk = kernel(chunks * heads * kChunk *
                               (kChunk * (2 * k + kChunk + 2 * k + 2 * v) + 6 * k * v + 2 * kChunk * (k + v)),
                           tokens * (keys + heads * (2 * v + 2 * 4)) * kElement + 2 * states);
  const double waves = std::ceil(heads * requests / multiprocessors_);
  walk.seconds = std::max(walk.seconds, kFixedSeconds + longest * waves * kStepSeconds);
  cost += walk;
  elementwise(2 * states);  // states written back
  return cost;
}

KernelCost GatedDeltaCosts::moves(const LinearLayers& layers, const StateMoves& moves, bool decodes) const {
  KernelCost cost;
  const auto bytes = static_cast<double>(layers.bytes_per_request());
  const auto add = [&](double moved, double launches) {
    KernelCost one = kernel(0, moved);
    one.seconds += (launches - 1) * kFixedSeconds;
    one.launches = static_cast<std::uint32_t>(launches);
    cost += one;
  };
  if (moves.copies > 0) add(moves.copies * 4 * bytes, 3);  // gathered, then written
  if (moves.clears > 0) add(moves.clears * bytes, 2);
  if (decodes) {
    if (moves.may_snapshot) add(moves.snapshots * 2 * bytes, 1);
  } else if (moves.snapshots > 0) {
    add(moves.snapshots * 4 * bytes, 4.0 * layers.count);
  }
  return cost;
}

}  // namespace tpsim::rank
