#include "rank/llm/linear_attention_cost.h"

#include <algorithm>
#include <cmath>

#include "rank/config/weight_format.h"

namespace tpsim::rank {
namespace {

// Measured on an H200.
using Moving = GatedDeltaCosts::Moving;
constexpr Moving kDecodeConv{1.75e-6, 0.59};
constexpr Moving kDecodeSplit{1.75e-6, 0.93};
constexpr Moving kExtendConv{3.25e-6, 0.54};
constexpr Moving kExtendSplit{1.75e-6, 0.71};
constexpr Moving kGates{0.5e-6, 0.03};
constexpr Moving kCopies{5.25e-6, 0.47};    // of q, k and v, three kernels
constexpr Moving kStateCopy{3.0e-6, 0.33};  // slots indexed: gathered, then written
constexpr Moving kStateClear{3.0e-6, 0.19};
constexpr Moving kStateSnapshot{7.0e-6, 0.55};  // of one layer of an extend
// Not measured: FlashInfer's kernel does in one step what five of Triton's do for a chunk.
constexpr double kFlashInferStep = 3.0e-6, kFlashInferLeast = 4.5e-6;
constexpr Moving kElementwise{3e-6, 0.75};

DeltaWork work_of(const LinearLayers& layers, double requests, double tokens) {
  return {.requests = requests,
          .tokens = tokens,
          .chunks = requests,
          .key_heads = double(layers.num_k_heads),
          .heads = double(layers.num_v_heads),
          .k_dim = double(layers.k_dim),
          .v_dim = double(layers.v_dim),
          .channels = double(layers.conv_dim()),
          .conv_kernel = double(layers.conv_kernel),
          .state_bytes = double(layers.state_bytes)};
}

DeltaWork work_of(const LinearLayers& layers, std::span<const std::uint32_t> lens) {
  DeltaWork work = work_of(layers, double(lens.size()), 0);
  work.chunks = 0;
  for (const std::uint32_t length : lens) {
    const double of_request = std::ceil(length / kDeltaChunk);
    work.tokens += length;
    work.chunks += of_request;
    work.longest = std::max(work.longest, of_request);
  }
  return work;
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
    case LinearKind::kKda:
      break;
    case LinearKind::kShortConv:
      return "not measured: short convolutions, as those of gated delta-nets";
    case LinearKind::kMamba2:
      return "shares of an H200's rates that Mamba 2's kernels reached in a server";
    case LinearKind::kLightning:
      return "not measured: bytes and arithmetic of lightning attention's kernels";
  }
  return "measured";
}

GatedDeltaCosts::GatedDeltaCosts(const proto::HardwareProfile& profile, LinearAttnBackends backends)
    : backends_(backends),
      state_space_(profile),
      kernels_(profile),
      state_pool_(profile.architecture() != "hopper"),
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
  const DeltaWork work = work_of(layers, requests, requests);
  const double values = work.heads * work.v_dim;
  const bool kda = layers.kind == LinearKind::kKda;
  // Projections split and put together; convolution over the last tokens, whose window moves on.
  KernelCost cost;
  if (!kda) cost += moving(kDecodeSplit, requests * 2 * (work.channels + values) * kElement);
  cost += kernels_.cost(kda ? DeltaKernel::kKdaConvDecode : DeltaKernel::kGdnConvDecode, work, false);
  // Gates, norms of q and k, decay, update and read-out of the state in one kernel.
  cost += kernels_.cost(kda ? DeltaKernel::kKdaDecode : DeltaKernel::kGdnDecode, work, false);
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
  const DeltaWork work = work_of(layers, requests, tokens);
  const double values = work.heads * work.v_dim;
  const bool kda = layers.kind == LinearKind::kKda;
  KernelCost cost;
  if (!kda) cost += moving(kDecodeSplit, tokens * 2 * (work.channels + values) * kElement);
  cost += kernels_.cost(kda ? DeltaKernel::kKdaConvDecode : DeltaKernel::kGdnConvDecode, work, false);
  cost += kernels_.cost(DeltaKernel::kVerify, work, false);
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
  const DeltaWork work = work_of(layers, lens);
  if (layers.kind == LinearKind::kShortConv)
    return short_conv(layers, work.tokens, work.requests, kExtendConv);
  if (is_state_space(layers.kind)) return state_space_.scan(layers, lens);
  const double values = work.heads * work.v_dim;
  KernelCost cost;
  if (layers.kind == LinearKind::kKda) {
    cost += kernels_.cost(DeltaKernel::kKdaConvExtend, work, true);
    cost += kernels_.cost(DeltaKernel::kKdaExtend, work, true);
  } else {
    cost += moving(kExtendSplit, work.tokens * 2 * (work.channels + values) * kElement);
    cost += kernels_.cost(DeltaKernel::kGdnConvExtend, work, true);
    cost += moving(kGates, work.tokens * work.heads * (2 * kElement + 2 * 4));  // decay and beta
    if (backends_.prefill == LinearAttnBackend::kFlashInfer) {
      cost += chunks_of_flashinfer(work);
    } else {
      cost += moving(kCopies, work.tokens * 2 * work.channels * kElement, 3);
      cost += kernels_.cost(DeltaKernel::kGdnExtend, work, true);
    }
  }
  cost += moving(kElementwise, work.tokens * 3 * values * kElement);  // gated norm
  return cost;
}

KernelCost GatedDeltaCosts::chunks_of_flashinfer(const DeltaWork& work) const {
  const auto [requests, tokens, chunks, longest, key_heads, heads, k, v, channels, window, state] = work;
  const double keys = 2 * key_heads * k;
  const double states = requests * heads * k * v * state;
  KernelCost cost;
  cost +=
      moving(kElementwise, tokens * 2 * (keys + heads * v) * kElement);  // q, k and v cut out, q and k normed
  cost += moving(kElementwise, tokens * heads * 2 * 4);                  // exp of the decay
  cost += moving(kElementwise, 2 * states);                              // states gathered
  // A thread block walks over the chunks of one head of one request.
  const double flops = chunks * heads * kDeltaChunk *
                       (kDeltaChunk * (4 * k + kDeltaChunk + 2 * v) + 6 * k * v + 2 * kDeltaChunk * (k + v));
  const double waves = std::ceil(heads * requests / multiprocessors_);
  cost += {kFlashInferLeast + longest * waves * kFlashInferStep, flops,
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
