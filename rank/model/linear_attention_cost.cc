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

GatedDeltaCosts::GatedDeltaCosts(const proto::HardwareProfile& profile)
    : flops_(profile.dense_flops_bf16()),
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
  cost += kernel(0, requests * 3 * values * kElement);  // gated norm
  return cost;
}

KernelCost GatedDeltaCosts::extend(const LinearLayers& layers, std::span<const std::uint32_t> lens) const {
  double tokens = 0, chunks = 0, longest = 0;
  for (const std::uint32_t length : lens) {
    const double of_request = std::ceil(length / kChunk);
    tokens += length;
    chunks += of_request;
    longest = std::max(longest, of_request);
  }
  const auto requests = static_cast<double>(lens.size());
  const auto conv = static_cast<double>(layers.conv_dim());
  const double heads = layers.num_v_heads;
  const double k = layers.k_dim;
  const double v = layers.v_dim;
  const double keys = 2.0 * layers.num_k_heads * k;  // and queries
  KernelCost cost;
  const auto elementwise = [&](double bytes) { cost += kernel(0, bytes); };
  elementwise(tokens * 2 * (conv + heads * v) * kElement);  // split and put together
  cost += kernel(2 * tokens * conv * layers.conv_kernel,
                 tokens * 2 * conv * kElement + requests * 2 * double(layers.conv_bytes()));
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
  elementwise(tokens * 3 * heads * v * kElement);  // gated norm
  return cost;
}

}  // namespace tpsim::rank
