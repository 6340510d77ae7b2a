#include "rank/llm/memory.h"

#include <algorithm>
#include <cmath>

#include "attention/gpu_generation.h"
#include "proto/base/error.h"
#include "rank/llm/layers.h"

namespace tpsim::rank {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;
// What SGLang finds taken before it loads the weights: the driver's context, libraries, and from --tp 2 on
// NCCL's buffers and those of the custom all-reduce, which grow with the ranks that a GPU writes to.
// Source: memory_usage_gb and mem_fraction_static of 9 servers of SGLang 0.5.12 on H200s at --tp 1, 2 and 4
// (shared/data/serving/servers.jsonl), whose pools follow within 0.1 %; "Load weight begin" of public
// start-up logs at --tp 8 (3.1 GiB of an H200, 2.2 of an H100 with an older PyTorch) and of --tp 4 over PCIe
// (1.6 GiB).
double context_bytes(const proto::HardwareProfile& profile, std::uint32_t tp_size) {
  constexpr double kAlone = 1.29 * kGiB;
  if (tp_size == 1) return kAlone;
  constexpr double kOverPcie = 0.3 * kGiB;
  return kAlone + (profile.nvlink() ? (0.62 + 0.14 * std::min(tp_size, 8U)) * kGiB : kOverPcie);
}

struct MemoryClass {
  double below_mib;
  std::uint32_t chunked_prefill_size;
  std::uint32_t max_bs_small_tp;  // --tp below 4
  std::uint32_t max_bs;
};
constexpr MemoryClass kClasses[] = {
    {20 * 1024, 2048, 8, 8},     {35 * 1024, 2048, 24, 80},    {60 * 1024, 4096, 32, 160},
    {90 * 1024, 8192, 256, 512}, {160 * 1024, 8192, 256, 512}, {1e12, 16384, 512, 512},
};
constexpr MemoryClass kLargerBelow35GiB = {35 * 1024, 4096, 48, 160};
// Ascend's own, up to and including 32 and 64 GiB; larger devices have the classes above.
constexpr MemoryClass kNpuClasses[] = {{32 * 1024 + 1, 4096, 16, 64}, {64 * 1024 + 1, 8192, 64, 256}};

attention::GpuGeneration generation_of(const proto::HardwareProfile& profile) {
  return attention::parse_gpu_generation(profile.architecture()).value();
}

MemoryClass memory_class(const proto::HardwareProfile& profile, bool larger_below_35_gib) {
  const double mib = profile.memory_bytes() / kMiB;
  if (generation_of(profile) == attention::GpuGeneration::kNpu) {
    for (const MemoryClass& npu : kNpuClasses) {
      if (mib < npu.below_mib) return npu;
    }
  }
  const MemoryClass* found = kClasses;
  while (mib >= found->below_mib) ++found;
  return larger_below_35_gib && found->below_mib == kLargerBelow35GiB.below_mib ? kLargerBelow35GiB : *found;
}

}  // namespace

BatchDefaults default_batches(const proto::HardwareProfile& profile, std::uint32_t tp_size,
                              bool larger_below_35_gib) {
  const MemoryClass found = memory_class(profile, larger_below_35_gib);
  return {found.chunked_prefill_size, tp_size < 4 ? found.max_bs_small_tp : found.max_bs};
}

double default_mem_fraction(const proto::HardwareProfile& profile, const MemoryReserve& reserve) {
  const double mib = profile.memory_bytes() / kMiB;
  double reserved = 512;
  reserved += std::max(reserve.activation_tokens, 2048U) * 1.5;
  reserved += reserve.cuda_graph_max_bs * 2.0;
  reserved += reserve.tp_size / 8.0 * 1024;
  if (reserve.dp_size > 1) {  // more padding, and larger buffers
    const double rows = double(reserve.cuda_graph_max_bs) * reserve.dp_size;
    reserved += rows * (reserve.cuda_graph_max_bs > 300 ? 4.5 : 3);
  }
  if (reserve.prefill_captures > 0) reserved += reserve.mla ? 1536 : reserve.prefill_captures * 8.0;
  if (mib > 60 * 1024) reserved = std::max(reserved, 10.0 * 1024);
  reserved += static_cast<double>(reserve.draft_mib);
  // Scratch of oneDNN for matrices with an odd number of rows.
  if (generation_of(profile) == attention::GpuGeneration::kXpu) reserved += 2 * 1024;
  return std::round((mib - reserved) / mib * 1000) / 1000;
}

DeviceGraphs default_graphs(const proto::HardwareProfile& profile) {
  using enum attention::GpuGeneration;
  const attention::GpuGeneration device = generation_of(profile);
  return {.decode = device != kXpu && device != kCpu,
          .prefill = attention::kCudaGenerations.contains(device)};
}

KvCapacity kv_capacity(const proto::HardwareProfile& profile, const ModelConfig& model, const Shard& shard,
                       double mem_fraction_static, NumberFormat kv_format, std::uint32_t page_size,
                       const StatePool& states, std::uint32_t sparse_token_bytes, const WindowPool& windows,
                       const DraftMemory& draft) {
  KvCapacity capacity;
  capacity.weight_bytes = weight_bytes(model, shard) + draft.weight_bytes;
  capacity.kv_bytes_per_token = kv_bytes_per_token(model, shard, kv_format, sparse_token_bytes);
  if (windows.window > 0) {
    capacity.window_bytes_per_token = window_bytes_per_token(model, shard, kv_format);
    capacity.kv_bytes_per_token -= capacity.window_bytes_per_token;
  }
  const std::uint64_t target_kv = capacity.kv_bytes_per_token;
  capacity.kv_bytes_per_token += static_cast<std::uint64_t>(static_cast<double>(target_kv) * draft.layers);
  const double total = profile.memory_bytes() - context_bytes(profile, shard.tp_size);
  double rest = total * mem_fraction_static - static_cast<double>(capacity.weight_bytes) -
                static_cast<double>(model.vision.reserved_bytes);
  if (!draft.from_pool) rest += static_cast<double>(draft.weight_bytes);
  capacity.state_bytes = linear_layers(model, shard).bytes_per_request();
  if (capacity.state_bytes > 0 && rest > 0) {
    const double of_states = rest * states.full_memory_ratio / (1 + states.full_memory_ratio);
    // One more is for what padding writes.
    const auto each = static_cast<double>(capacity.state_bytes);
    const double drafts = states.verified_tokens;
    const double with_drafts = each * (1 + drafts / states.slots_per_request);
    capacity.state_slots = states.slots.value_or(
        static_cast<std::uint64_t>(std::max(0.0, (of_states - each * (1 + drafts)) / with_drafts)));
    const auto running =
        std::min<std::uint64_t>(states.running_requests, capacity.state_slots / states.slots_per_request);
    capacity.verified_state_bytes = states.verified_tokens * (running + 1) * capacity.state_bytes;
    const double taken = static_cast<double>(capacity.state_slots + 1) * each +
                         static_cast<double>(capacity.verified_state_bytes);
    if (capacity.state_slots == 0 || taken >= rest) {
      throw_user_error(
          "--mem-fraction-static {}: leaves {:.2f} GiB of each GPU beside the weights, which {} states of "
          "{:.1f} MiB of gated delta-net layers do not fit; make it larger, or give --max-running-requests, "
          "--max-mamba-cache-size or --mamba-full-memory-ratio another value",
          mem_fraction_static, rest / kGiB, capacity.state_slots,
          static_cast<double>(capacity.state_bytes) / kMiB);
    }
    rest -= taken;
  }
  auto bytes_per_token = static_cast<double>(draft.from_pool ? capacity.kv_bytes_per_token : target_kv);
  const auto window_bytes = static_cast<double>(capacity.window_bytes_per_token);
  if (windows.tokens > 0) {
    rest -= static_cast<double>(windows.tokens) * window_bytes;
  } else if (windows.window > 0) {
    bytes_per_token += windows.full_tokens_ratio * window_bytes;
  }
  const double tokens = rest / bytes_per_token;
  if (tokens < page_size) {
    throw_user_error(
        "--model-path {}: its weights take {:.1f} GiB of each of the {} GPUs, and {} leaves {:.1f} GiB at "
        "--mem-fraction-static {}; use a larger --tp, a larger GPU or a larger fraction",
        model.name, static_cast<double>(capacity.weight_bytes) / kGiB, shard.tp_size, profile.name(),
        total * mem_fraction_static / kGiB, mem_fraction_static);
  }
  capacity.tokens = static_cast<std::uint64_t>(tokens) / page_size * page_size;
  if (windows.window > 0) capacity.window_tokens = window_pool_tokens(windows, capacity.tokens, page_size);
  return capacity;
}

std::uint64_t most_window_tokens(std::uint32_t window, std::uint32_t page_size, std::uint32_t requests,
                                 std::uint32_t chunked_prefill_size, bool overlap) {
  constexpr std::uint64_t kEvictionInterval = 128;  // SGLANG_SWA_EVICTION_INTERVAL
  const std::uint64_t of_request = window + kEvictionInterval + 2 * std::uint64_t{page_size};
  const std::uint64_t chunks = std::uint64_t{overlap ? 2U : 1U} * chunked_prefill_size;
  const std::uint64_t most = of_request * std::max(1U, requests) + chunks + page_size;
  return (most + page_size - 1) / page_size * page_size;
}

std::uint64_t window_pool_tokens(const WindowPool& windows, std::uint64_t tokens, std::uint32_t page_size) {
  if (windows.tokens > 0) return std::min(windows.tokens, tokens);
  const auto shared = static_cast<std::uint64_t>(static_cast<double>(tokens) * windows.full_tokens_ratio) /
                      page_size * page_size;
  if (std::uint64_t{windows.window} + page_size >= shared) {
    throw_user_error(
        "--swa-full-tokens-ratio {}: makes a pool of {} tokens for window layers, which cannot hold one "
        "window of {} tokens and a page of {}; use a larger ratio, a larger KV pool or "
        "--disable-hybrid-swa-memory",
        windows.full_tokens_ratio, shared, windows.window, page_size);
  }
  return shared;
}

std::uint32_t default_max_running_requests(std::uint64_t pool_tokens, std::uint32_t context_length) {
  const double by_pool = static_cast<double>(pool_tokens) / std::max(1U, context_length) * 512;
  return static_cast<std::uint32_t>(std::clamp(by_pool, 2048.0, 4096.0));
}

}  // namespace tpsim::rank
