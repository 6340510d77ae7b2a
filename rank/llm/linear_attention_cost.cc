#include "rank/llm/linear_attention_cost.h"

#include <algorithm>
#include <cmath>

#include "rank/config/weight_format.h"

namespace tpsim::rank {
namespace {

constexpr double kChunk = 64;  // tokens (FLA's CHUNK_SIZE)

// Measured on an H200.
using Moving = GatedDeltaCosts::Moving;
constexpr Moving kDecodeRule{3.0e-6, 0.81};
constexpr Moving kDecodeConv{1.75e-6, 0.59};
constexpr Moving kDecodeSplit{1.75e-6, 0.93};
constexpr Moving kExtendConv{3.25e-6, 0.54};
constexpr Moving kExtendSplit{1.75e-6, 0.71};
constexpr Moving kGates{0.5e-6, 0.03};
constexpr Moving kCopies{5.25e-6, 0.47};    // of q, k and v, three kernels
constexpr Moving kNorms{3.0e-6, 0.90};      // of q and k, two kernels
constexpr Moving kDecays{1.5e-6, 0.06};     // added up within chunks
constexpr Moving kFills{2.0e-6, 0.53};      // results that begin with zeros, two kernels
constexpr Moving kStateCopy{3.0e-6, 0.33};  // slots indexed: gathered, then written
constexpr Moving kStateClear{3.0e-6, 0.19};
constexpr Moving kStateSnapshot{7.0e-6, 0.55};  // of one layer of an extend
// The same of kernels that compute: the shortest time, and the share of the dense bf16 rate.
struct Computing {
  double least, share;
};
constexpr Computing kSolve{17e-6, 0.0353};   // keys by keys, and the triangular system solved
constexpr Computing kWeighted{6e-6, 0.109};  // w and u
constexpr Computing kOutputs{3e-6, 0.151};   // added, not the least
constexpr Computing kWalk{4.5e-6, 0.121};    // added, too
constexpr double kWalkStep = 1.45e-6;        // seconds from one chunk of the longest request to the next
constexpr double kWalkHead = 0.02e-6;        // and for each of its heads
constexpr double kWalkStates = 0.91;         // share of the bandwidth that moves its states
// Not measured: FlashInfer's kernel does in one step what five of Triton's do for a chunk.
constexpr double kFlashInferStep = 3.0e-6;
constexpr Moving kElementwise{3e-6, 0.75};

// What the kernels of a prefill work on.
struct Extents {
  double tokens = 0, chunks = 0;
  double longest = 0;  // chunks of the longest request
  double requests = 0, heads = 0, k = 0, v = 0;
  double keys = 0;  // and queries, elements of a token
};

Extents extents_of(const LinearLayers& layers, std::span<const std::uint32_t> lens) {
  Extents extents;
  for (const std::uint32_t length : lens) {
    const double of_request = std::ceil(length / kChunk);
    extents.tokens += length;
    extents.chunks += of_request;
    extents.longest = std::max(extents.longest, of_request);
  }
  extents.requests = static_cast<double>(lens.size());
  extents.heads = layers.num_v_heads;
  extents.k = layers.k_dim;
  extents.v = layers.v_dim;
  extents.keys = 2.0 * layers.num_k_heads * extents.k;
  return extents;
}

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

std::string source_of_price(LinearKind kind) {
  switch (kind) {
    case LinearKind::kGatedDelta:
      break;
    case LinearKind::kKda:
      return "not measured: KDA's layers, as gated delta-nets";
    case LinearKind::kShortConv:
      return "not measured: short convolutions, as those of gated delta-nets";
    case LinearKind::kMamba2:
      return "not measured: bytes and arithmetic of Mamba 2's kernels";
    case LinearKind::kLightning:
      return "not measured: bytes and arithmetic of lightning attention's kernels";
  }
  return "measured";
}

GatedDeltaCosts::GatedDeltaCosts(const proto::HardwareProfile& profile, LinearAttnBackends backends)
    : backends_(backends),
      state_space_(profile),
      state_pool_(profile.architecture() != "hopper"),
      flops_(profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()),
      multiprocessors_(profile.multiprocessors()) {}

KernelCost GatedDeltaCosts::moving(const Moving& kernel, double bytes, std::uint32_t launches,
                                   double flops) const {
  return {kernel.fixed + bytes / (bandwidth_ * kernel.share), flops, bytes, launches};
}

// models/lfm2.py: a gate before the convolution and one behind it, each a kernel of PyTorch's.
KernelCost GatedDeltaCosts::short_conv(const LinearLayers& layers, double tokens, double requests,
                                       const Moving& conv) const {
  const auto channels = static_cast<double>(layers.conv_dim());
  KernelCost cost =
      moving(conv, tokens * 2 * channels * kElement + requests * 2 * double(layers.conv_bytes()), 1,
             2 * tokens * channels * layers.conv_kernel);
  for (int i = 0; i < 2; ++i) cost += moving(kElementwise, tokens * 3 * channels * kElement);
  return cost;
}

KernelCost GatedDeltaCosts::decode(const LinearLayers& layers, double requests) const {
  if (layers.kind == LinearKind::kShortConv) return short_conv(layers, requests, requests, kDecodeConv);
  if (is_state_space(layers.kind)) return state_space_.step(layers, requests, 1);
  const auto conv = static_cast<double>(layers.conv_dim());
  const double values = double(layers.num_v_heads) * layers.v_dim;
  const double state = double(layers.num_v_heads) * layers.k_dim * layers.v_dim;  // elements
  // Projections split and put together; convolution over the last tokens, whose window moves on.
  KernelCost cost = moving(kDecodeSplit, requests * 2 * (conv + values) * kElement);
  cost += moving(kDecodeConv, requests * (2 * conv * kElement + 2 * double(layers.conv_bytes())), 1,
                 2 * requests * conv * layers.conv_kernel);
  // Gates, norms of q and k, decay, update and read-out of the state in one kernel.
  cost += moving(kDecodeRule, requests * (2 * double(layers.temporal_bytes()) + (conv + values) * kElement),
                 1, 7 * requests * state);
  if (backends_.decode == LinearAttnBackend::kFlashInfer && !state_pool_) {
    // The states gathered, and scattered.
    for (int i = 0; i < 2; ++i) cost += moving(kElementwise, requests * 2 * double(layers.temporal_bytes()));
  }
  cost += moving(kElementwise, requests * 3 * values * kElement);  // gated norm
  return cost;
}

KernelCost GatedDeltaCosts::verify(const LinearLayers& layers, double requests, std::uint32_t drafts) const {
  const double tokens = requests * drafts;
  if (layers.kind == LinearKind::kShortConv) return short_conv(layers, tokens, requests, kDecodeConv);
  if (is_state_space(layers.kind)) return state_space_.step(layers, requests, drafts);
  const auto conv = static_cast<double>(layers.conv_dim());
  const double values = double(layers.num_v_heads) * layers.v_dim;
  const double state = double(layers.num_v_heads) * layers.k_dim * layers.v_dim;  // elements
  KernelCost cost = moving(kDecodeSplit, tokens * 2 * (conv + values) * kElement);
  // Windows after each draft overlap in one of drafts + kernel - 2 columns.
  cost += moving(
      kDecodeConv,
      tokens * 2 * conv * kElement + requests * (double(layers.conv_bytes()) +
                                                 conv * (double(drafts) + layers.conv_kernel - 2) * kElement),
      1, 2 * tokens * conv * layers.conv_kernel);
  cost += moving(
      kDecodeRule,
      requests * (1.0 + drafts) * double(layers.temporal_bytes()) + tokens * (conv + values) * kElement, 1,
      7 * tokens * state);
  cost += moving(kElementwise, tokens * 3 * values * kElement);  // gated norm
  return cost;
}

KernelCost GatedDeltaCosts::commit(const LinearLayers& layers, double requests,
                                   const StateMoves& moves) const {
  const auto bytes = static_cast<double>(layers.bytes_per_request());
  const Moving both = {2 * kElementwise.fixed, kElementwise.share};
  KernelCost cost = moving(both, requests * 2 * bytes, 2);
  if (moves.may_snapshot) cost += moving(both, moves.snapshots * 2 * bytes, 2);
  return cost;
}

KernelCost GatedDeltaCosts::extend(const LinearLayers& layers, std::span<const std::uint32_t> lens) const {
  double tokens = 0;
  for (const std::uint32_t length : lens) tokens += length;
  const auto requests = static_cast<double>(lens.size());
  if (layers.kind == LinearKind::kShortConv) return short_conv(layers, tokens, requests, kExtendConv);
  if (is_state_space(layers.kind)) return state_space_.scan(layers, lens);
  const auto conv = static_cast<double>(layers.conv_dim());
  const double values = double(layers.num_v_heads) * layers.v_dim;
  KernelCost cost = moving(kExtendSplit, tokens * 2 * (conv + values) * kElement);
  cost += moving(kExtendConv, tokens * 2 * conv * kElement + requests * 2 * double(layers.conv_bytes()), 1,
                 2 * tokens * conv * layers.conv_kernel);
  cost += moving(kGates, tokens * layers.num_v_heads * (2 * kElement + 2 * 4));  // decay and beta
  cost += backends_.prefill == LinearAttnBackend::kFlashInfer ? chunks_of_flashinfer(layers, lens)
                                                              : chunks_of_triton(layers, lens);
  cost += moving(kElementwise, tokens * 3 * values * kElement);  // gated norm
  return cost;
}

KernelCost GatedDeltaCosts::chunks_of_triton(const LinearLayers& layers,
                                             std::span<const std::uint32_t> lens) const {
  const auto [tokens, chunks, longest, requests, heads, k, v, keys] = extents_of(layers, lens);
  KernelCost cost;
  cost += moving(kCopies, tokens * 2 * static_cast<double>(layers.conv_dim()) * kElement, 3);
  cost += moving(kNorms, tokens * 2 * keys * kElement, 2);
  cost += moving(kDecays, tokens * heads * 2 * 4);
  cost += moving(kFills, tokens * heads * (kChunk + v) * kElement, 2);
  const auto compute = [&](const Computing& kernel, double flops, double bytes) {
    cost += {std::max(kernel.least, flops / (flops_ * kernel.share)), flops, bytes, 1};
  };
  compute(kSolve, chunks * heads * kChunk * kChunk * (2 * k + kChunk), tokens * keys / 2 * kElement);
  compute(kWeighted, chunks * heads * kChunk * kChunk * (2 * k + 2 * v),
          tokens * heads * (2 * v + k) * kElement);
  // From chunk to chunk, a block of each state's rows at a time; every chunk's state is written.
  const double states = requests * 2 * double(layers.temporal_bytes());
  const double walked = chunks * heads * 4 * kChunk * k * v;
  const double at_once = walked / (flops_ * kWalk.share) + states / (bandwidth_ * kWalkStates);
  cost += {kWalk.least + std::max(longest * (kWalkStep + heads * kWalkHead), at_once), walked,
           (tokens * (keys / 2 + heads * (k + 2 * v)) + chunks * heads * k * v) * kElement + states, 1};
  // Outputs from the states and from within the chunk.
  const double out = chunks * heads * kChunk * (2 * k * v + 2 * kChunk * (k + v));
  cost += {kOutputs.least + out / (flops_ * kOutputs.share), out,
           (tokens * (keys + heads * 2 * v) + chunks * heads * k * v) * kElement, 1};
  return cost;
}

KernelCost GatedDeltaCosts::chunks_of_flashinfer(const LinearLayers& layers,
                                                 std::span<const std::uint32_t> lens) const {
  const auto [tokens, chunks, longest, requests, heads, k, v, keys] = extents_of(layers, lens);
  const double states = requests * double(layers.temporal_bytes());
  KernelCost cost;
  cost +=
      moving(kElementwise, tokens * 2 * (keys + heads * v) * kElement);  // q, k and v cut out, q and k normed
  cost += moving(kElementwise, tokens * heads * 2 * 4);                  // exp of the decay
  cost += moving(kElementwise, 2 * states);                              // states gathered
  // A thread block walks over the chunks of one head of one request.
  const double flops =
      chunks * heads * kChunk * (kChunk * (4 * k + kChunk + 2 * v) + 6 * k * v + 2 * kChunk * (k + v));
  const double waves = std::ceil(heads * requests / multiprocessors_);
  cost += {kWalk.least + longest * waves * kFlashInferStep, flops,
           tokens * (keys + heads * 2 * (v + 4)) * kElement + 2 * states, 1};
  cost += moving(kElementwise, 2 * states);  // states written back
  return cost;
}

KernelCost GatedDeltaCosts::moves(const LinearLayers& layers, const StateMoves& moves, bool decodes) const {
  KernelCost cost;
  const auto bytes = static_cast<double>(layers.bytes_per_request());
  if (moves.copies > 0) cost += moving(kStateCopy, moves.copies * 4 * bytes, 3);
  if (moves.clears > 0) cost += moving(kStateClear, moves.clears * bytes, 2);
  if (decodes) {
    if (moves.may_snapshot) cost += moving(kElementwise, moves.snapshots * 2 * bytes);
  } else if (moves.snapshots > 0) {
    // In each layer gathered as bf16, widened, written; the convolution's window, too.
    const Moving all = {kStateSnapshot.fixed * layers.count, kStateSnapshot.share};
    cost += moving(all, moves.snapshots * 4.5 * bytes, 5 * layers.count);
  }
  return cost;
}

}  // namespace tpsim::rank
