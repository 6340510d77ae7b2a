#include "rank/model/memory.h"

#include <algorithm>
#include <cmath>

#include "attention/gpu_generation.h"
#include "proto/base/error.h"
#include "rank/model/layers.h"

namespace tpsim::rank {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;
// CUDA context, NCCL buffers and libraries, which the driver counts before SGLang looks at what is free.
// Order of magnitude from SGLang's start-up logs; not calibrated.
constexpr double kContextBytes = 1.5 * kGiB;

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

std::vector<std::uint32_t> capture_batch_sizes(std::uint32_t max_bs) {
  std::vector<std::uint32_t> sizes = {1, 2, 4, 8, 12};
  for (std::uint32_t bs = 16; bs < 257; bs += 8) sizes.push_back(bs);
  for (std::uint32_t bs = 272; bs < 512; bs += 16) sizes.push_back(bs);
  for (std::uint32_t bs = 512; bs <= max_bs; bs += 32) sizes.push_back(bs);
  std::erase_if(sizes, [max_bs](std::uint32_t bs) { return bs > max_bs; });
  if (sizes.empty() || sizes.back() != max_bs) sizes.push_back(max_bs);
  return sizes;
}

KvCapacity kv_capacity(const proto::HardwareProfile& profile, const ModelConfig& model, const Shard& shard,
                       double mem_fraction_static, NumberFormat kv_format, std::uint32_t page_size,
                       const StatePool& states, std::uint32_t sparse_token_bytes) {
  KvCapacity capacity;
  capacity.weight_bytes = weight_bytes(model, shard);
  capacity.kv_bytes_per_token = kv_bytes_per_token(model, shard, kv_format, sparse_token_bytes);
  const double total = profile.memory_bytes() - kContextBytes;
  double rest = total * mem_fraction_static - static_cast<double>(capacity.weight_bytes) -
                static_cast<double>(model.vision.reserved_bytes);
  capacity.state_bytes = linear_layers(model, shard).bytes_per_request();
  if (capacity.state_bytes > 0 && rest > 0) {
    const double of_states = rest * states.full_memory_ratio / (1 + states.full_memory_ratio);
    capacity.state_slots = states.slots.value_or(
        static_cast<std::uint64_t>(of_states / static_cast<double>(capacity.state_bytes)));
    const double taken =
        static_cast<double>(capacity.state_slots) * static_cast<double>(capacity.state_bytes);
    if (capacity.state_slots == 0 || taken >= rest) {
      throw_user_error(
          "--max-mamba-cache-size {}: the states of a request take {:.1f} MiB of each GPU, and {:.2f} GiB "
          "are "
          "left beside the weights; give --mamba-full-memory-ratio or --mem-fraction-static another value",
          capacity.state_slots, static_cast<double>(capacity.state_bytes) / kMiB, rest / kGiB);
    }
    rest -= taken;
  }
  const double tokens = rest / static_cast<double>(capacity.kv_bytes_per_token);
  if (tokens < page_size) {
    throw_user_error(
        "--model-path {}: its weights take {:.1f} GiB of each of the {} GPUs, and {} leaves {:.1f} GiB at "
        "--mem-fraction-static {}; use a larger --tp, a larger GPU or a larger fraction",
        model.name, static_cast<double>(capacity.weight_bytes) / kGiB, shard.tp_size, profile.name(),
        total * mem_fraction_static / kGiB, mem_fraction_static);
  }
  capacity.tokens = static_cast<std::uint64_t>(tokens) / page_size * page_size;
  return capacity;
}

std::uint32_t default_max_running_requests(std::uint64_t pool_tokens, std::uint32_t context_length) {
  const double by_pool = static_cast<double>(pool_tokens) / std::max(1U, context_length) * 512;
  return static_cast<std::uint32_t>(std::clamp(by_pool, 2048.0, 4096.0));
}

}  // namespace tpsim::rank
