#include "rank/model/memory.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

ServerDefaults default_server_args(const proto::HardwareProfile& profile, std::uint32_t tp_size,
                                   std::optional<std::uint32_t> chunked_prefill_size,
                                   std::optional<std::uint32_t> cuda_graph_max_bs, std::uint32_t dp_size) {
  const double mib = profile.memory_bytes() / kMiB;
  const MemoryClass* found = kClasses;
  while (mib >= found->below_mib) ++found;
  ServerDefaults defaults;
  defaults.chunked_prefill_size = chunked_prefill_size.value_or(found->chunked_prefill_size);
  defaults.cuda_graph_max_bs =
      cuda_graph_max_bs.value_or(tp_size < 4 ? found->max_bs_small_tp : found->max_bs);
  // Room for activations of a chunk, for the graphs, and for the process group, in MiB.
  double reserved = 512;
  reserved += std::max(defaults.chunked_prefill_size, 2048U) * 1.5;
  reserved += defaults.cuda_graph_max_bs * 2.0;
  reserved += tp_size / 8.0 * 1024;
  if (dp_size > 1) {  // more padding, and larger buffers
    const double rows = double(defaults.cuda_graph_max_bs) * dp_size;
    reserved += rows * (defaults.cuda_graph_max_bs > 300 ? 4.5 : 3);
  }
  if (mib > 60 * 1024) reserved = std::max(reserved, 10.0 * 1024);
  defaults.mem_fraction_static = std::round((mib - reserved) / mib * 1000) / 1000;
  return defaults;
}

std::vector<std::uint32_t> capture_batch_sizes(std::uint32_t max_bs) {
  std::vector<std::uint32_t> sizes = {1, 2, 4, 8, 12};
  for (std::uint32_t bs = 16; bs < 257; bs += 8) sizes.push_back(bs);
  for (std::uint32_t bs = 272; bs < 512; bs += 16) sizes.push_back(bs);
  for (std::uint32_t bs = 512; bs <= max_bs; bs += 32) sizes.push_back(bs);
  std::erase_if(sizes, [max_bs](std::uint32_t bs) { return bs > max_bs; });
  return sizes;
}

KvCapacity kv_capacity(const proto::HardwareProfile& profile, const ModelConfig& model, const Shard& shard,
                       double mem_fraction_static, NumberFormat kv_format, std::uint32_t page_size) {
  KvCapacity capacity;
  capacity.weight_bytes = weight_bytes(model, shard);
  capacity.kv_bytes_per_token = kv_bytes_per_token(model, shard, kv_format);
  const double total = profile.memory_bytes() - kContextBytes;
  const double rest = total * mem_fraction_static - static_cast<double>(capacity.weight_bytes);
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
