#include "launch/deployment/hicache.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "attention/selection/registry.h"
#include "kvcache/pools/page_allocator.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

using attention::GpuGeneration;
using scheduler::HostCopyCost;

// Of one direction between a GPU and host memory, bytes per second: PCIe x16 of its generation, or
// NVLink-C2C.
double host_link_bandwidth(const proto::HardwareProfile& hardware, GpuGeneration generation) {
  const std::string& name = hardware.name();
  if (name.starts_with("gh") || name.starts_with("gb")) return 450e9;
  switch (generation) {
    case GpuGeneration::kTuring:
      return 16e9;
    case GpuGeneration::kAmpere:
    case GpuGeneration::kAda:
      return 32e9;
    default:
      return 64e9;
  }
}

// Measured on H200s at PCIe 5 with llama-3.1-8b, 131,072 bytes a token (hicache_transfers of
// shared/data/fleet: 564 copies of SGLang 0.5.12). Shares of the link, as large copies reach them.
constexpr double kKernelShare = 0.63;       // 40 GB/s either way
constexpr double kKernelPagesShare = 0.48;  // 31 GB/s to the device, from page_first
constexpr double kDirectShare = 0.83;       // 53 GB/s
constexpr double kCopySeconds = 1.2e-4;     // of each copy: the intercept over its tokens
// The scheduler's thread: kernels are launched one a layer to load, one for all layers to write. `direct`
// issues a copy for each run of neighbouring pages in each layer's keys and values; 32 tokens that four
// requests decoded in turn took 20 ms, 6,000 of one prefill 1.0 ms.
constexpr double kKernelLayerSeconds = 3.6e-5;
constexpr double kKernelWriteSeconds = 2e-4;
constexpr double kDirectLayerSeconds = 1.5e-4;
constexpr double kDirectWriteRunSeconds = 1.0e-5;
constexpr double kDirectLoadRunSeconds = 1.2e-5;
// page_first_direct: a page is copied by itself, at 5 to 8 ms for 102 of 64 tokens and 32 layers.
constexpr double kDirectPageLayerSeconds = 2e-6;

void set_costs(const proto::HardwareProfile& hardware, const rank::ModelConfig& model, const HiCacheIo& io,
               const KvPoolShape& pool, scheduler::HiCacheConfig& config) {
  const double link = host_link_bandwidth(hardware, io.generation);
  const double bytes = static_cast<double>(pool.bytes_per_token);
  const double layers = pool.layers;
  const double buffers = layers * (model.is_mla() ? 1 : 2);
  const bool pages_first = io.layout != "layer_first";
  HostCopyCost& load = config.load;
  HostCopyCost& write = config.write;
  load.gpu_seconds = write.gpu_seconds = kCopySeconds;
  if (!io.direct) {
    load.gpu_token_seconds = bytes / (link * (pages_first ? kKernelPagesShare : kKernelShare));
    write.gpu_token_seconds = bytes / (link * kKernelShare);
    load.cpu_seconds = kKernelLayerSeconds * layers;
    write.cpu_seconds = kKernelWriteSeconds;
    return;
  }
  load.gpu_token_seconds = write.gpu_token_seconds = bytes / (link * kDirectShare);
  load.cpu_seconds = pages_first ? 0 : kDirectLayerSeconds * layers;
  if (pages_first) {
    load.cpu_page_seconds = write.cpu_page_seconds = kDirectPageLayerSeconds * layers;
  } else {
    load.cpu_run_seconds = kDirectLoadRunSeconds * buffers;
    write.cpu_run_seconds = kDirectWriteRunSeconds * buffers;
  }
}

// The file backend of the same servers: pages of 8 MiB, 93 of them read in 0.45 to 0.82 s and written in 0.58
// s and more; looking up 93 took 2 to 7 ms.
constexpr double kFileReadBandwidth = 1.5e9, kFileWriteBandwidth = 0.6e9;  // bytes per second
constexpr double kQueryPageSeconds = 4e-5;
// SGLang: prefetch_capacity_limit of cache_controller.py.
constexpr double kPrefetchShare = 0.8;

void set_storage(const HiCacheArgs& hicache, const KvPoolShape& pool, scheduler::HiCacheConfig& config) {
  if (hicache.storage_backend.empty()) return;
  const bool file = hicache.storage_backend == "file";
  if (!file && !hicache.storage_bandwidth)
    throw_user_error(
        "--hicache-storage-backend {}: how fast it is depends on what stands behind it; say "
        "--hicache-storage-bandwidth",
        hicache.storage_backend);
  scheduler::StorageConfig& storage = config.storage;
  storage.enabled = true;
  storage.policy = hicache.prefetch_policy;
  storage.threshold = std::max(storage.threshold, pool.page_size);
  if (config.tier.tokens > pool.tokens)
    storage.most_prefetched =
        static_cast<std::uint64_t>(kPrefetchShare * static_cast<double>(config.tier.tokens - pool.tokens));
  const double read = hicache.storage_bandwidth ? *hicache.storage_bandwidth * 1e9 : kFileReadBandwidth;
  const double write = hicache.storage_write_bandwidth      ? *hicache.storage_write_bandwidth * 1e9
                       : file && !hicache.storage_bandwidth ? kFileWriteBandwidth
                                                            : read;
  const double page_bytes = static_cast<double>(pool.bytes_per_token) * pool.page_size * pool.ranks;
  storage.read_page_seconds = page_bytes / read;
  storage.write_page_seconds = page_bytes / write;
  storage.query_page_seconds = kQueryPageSeconds;
  storage.latency_seconds = hicache.storage_latency_ms / 1e3;
}

// SGLang 0.5.12's _resolve_layout_io_compatibility.
void match_layout(HiCacheIo& io, Notes& warnings) {
  if (io.layout == "page_first_direct" && !io.direct) {
    io.direct = true;
    say(warnings,
        "--hicache-io-backend kernel: does not know --hicache-mem-layout page_first_direct; direct "
        "copies, as in SGLang");
  }
  if (io.layout == "page_first" && io.direct) {
    io.layout = "page_first_direct";
    say(warnings,
        "--hicache-mem-layout page_first: is page_first_direct with --hicache-io-backend direct, as "
        "in SGLang");
  }
}

}  // namespace

HiCacheIo choose_hicache_io(const ServerArgs& args, const rank::ModelConfig& model,
                            attention::GpuGeneration generation, bool decode_named, BackendPair& backends,
                            Notes& notes, Notes& warnings) {
  const HiCacheArgs& hicache = args.hicache;
  HiCacheIo io;
  if (!hicache.enable) return io;
  io.generation = generation;
  const scheduler::ReleaseRules& rules = args.sglang_release.rules;
  io.direct = hicache.io_backend == "direct";
  io.layout = hicache.mem_layout;
  if (io.layout.empty()) io.layout = rules.host_pages_first ? "page_first" : "layer_first";
  match_layout(io, warnings);
  if (hicache.storage_backend == "mooncake" && io.layout == "layer_first") {
    io.layout = io.direct ? "page_first_direct" : "page_first";
    say(warnings,
        "--hicache-mem-layout layer_first: is {} with --hicache-storage-backend mooncake, as in SGLang",
        io.layout);
  }
  using attention::BesideHostKernels;
  if (io.direct || rules.host_kernels_beside_fa3 ||
      attention::find_backend(backends.decode, "--attention-backend").row.beside_host_kernels !=
          BesideHostKernels::kReplaced)
    return io;
  if (decode_named) {
    io.direct = true;
    say(warnings,
        "--hicache-io-backend kernel: does not go with decoding by {}; direct copies, as in SGLang {}",
        backends.decode, args.sglang_release.name);
    match_layout(io, warnings);
    return io;
  }
  const bool first = model.is_mla() ? generation == GpuGeneration::kBlackwell : !model.attention_sinks;
  const BesideHostKernels wanted = first ? BesideHostKernels::kFirst : BesideHostKernels::kOther;
  const std::string replaced = backends.decode;
  for (const attention::BackendDescription* backend : attention::backend_list())
    if (backend->row.beside_host_kernels == wanted) backends.decode = backend->row.name;
  say(notes,
      "--decode-attention-backend: {} is chosen, for {} does not go with --hicache-io-backend kernel in "
      "SGLang {}",
      backends.decode, replaced, args.sglang_release.name);
  return io;
}

bool hicache_captures_prefills(const ServerArgs& args) {
  return !args.hicache.enable || args.sglang_release.rules.host_tier_captures_prefills;
}

HiCacheChoice resolve_hicache(const ServerArgs& args, const proto::HardwareProfile& hardware,
                              const rank::ModelConfig& model, const HiCacheIo& io, const KvPoolShape& pool,
                              bool speculates_with_head, bool radix_cache) {
  const HiCacheArgs& hicache = args.hicache;
  HiCacheChoice out;
  out.io = io;
  if (!hicache.enable) {
    for (const auto& [flag, value] : args.given) {
      if (flag.starts_with("--hicache-"))
        say(out.notes, "{} {}: means nothing without --enable-hierarchical-cache, as in SGLang", flag, value);
    }
    return out;
  }
  const auto refuse = [](std::string_view what, std::string_view instead) {
    throw_user_error("--enable-hierarchical-cache: a host tier {} is not simulated; {}", what, instead);
  };
  if (!radix_cache)
    throw_user_error(
        "--enable-hierarchical-cache: has nothing to keep without the radix cache, and SGLang refuses both; "
        "leave --disable-radix-cache out");
  if (args.numeric() && !hicache.storage_backend.empty())
    refuse("of real bytes (--executor numeric) with storage behind it",
           "leave --hicache-storage-backend out");
  if (pool.windows)
    refuse("beside a pool of sliding-window layers", "leave it out, or use --disable-hybrid-swa-memory");
  if (pool.states) refuse("beside states of layers with a recurrence", "leave it out");
  if (model.is_compressed()) refuse("of compressed latents", "leave it out");
  if (speculates_with_head) refuse("with a drafting model's KV", "leave it out, or use NGRAM");
  if (args.parallel.pp_size > 1) refuse("of pipeline stages", "leave --pp-size out");
  if (io.generation == GpuGeneration::kCpu && !args.numeric()) refuse("of a CPU", "leave it out");
  out.ratio = hicache.ratio.value_or(2);
  // HostKVCache of memory_pool_host.py: a page more than is asked for.
  const std::uint64_t asked = hicache.size > 0
                                  ? static_cast<std::uint64_t>(hicache.size * 1e9) / pool.bytes_per_token
                                  : static_cast<std::uint64_t>(static_cast<double>(pool.tokens) * out.ratio);
  const std::uint64_t tokens = (asked / pool.page_size + 1) * pool.page_size;
  if (tokens <= pool.tokens) {
    const std::string flag = hicache.size > 0 ? fmt::format("--hicache-size {}", hicache.size)
                                              : fmt::format("--hicache-ratio {}", format_real(out.ratio));
    if (!args.sglang_release.rules.host_tier_may_be_small)
      throw_user_error(
          "{}: {} tokens in host memory are no more than the {} of the device, which SGLang {} refuses; ask "
          "for more",
          flag, tokens, pool.tokens, args.sglang_release.name);
    say(out.notes, "{}: {} tokens in host memory are no more than the {} of the device, and save little",
        flag, tokens, pool.tokens);
  }
  out.config.tier = {.tokens = tokens,
                     .write_policy = hicache.write_policy,
                     .evict_shortfall = args.sglang_release.rules.evict_shortfall};
  out.config.layers = pool.layers;
  if (args.numeric()) {  // copies are made, and take the time that they take
    out.config.tier.first_page =
        kvcache::PageAllocator::with_slack(static_cast<std::uint32_t>(pool.tokens / pool.page_size));
    return out;
  }
  set_costs(hardware, model, io, pool, out.config);
  set_storage(hicache, pool, out.config);
  return out;
}

void write_hicache(const ServerArgs& args, const HiCacheChoice& choice, Rows& rows) {
  if (!choice.config.enabled()) return;
  rows["enable_hierarchical_cache"] = on_off(true);
  rows["hicache_ratio"] = format_real(choice.ratio);
  rows["hicache_size"] = std::to_string(args.hicache.size);
  rows["hicache_write_policy"] = to_string(args.hicache.write_policy);
  rows["hicache_io_backend"] = choice.io.direct ? "direct" : "kernel";
  rows["hicache_mem_layout"] = choice.io.layout;
  if (choice.config.storage.enabled) {
    rows["hicache_storage_backend"] = args.hicache.storage_backend;
    rows["hicache_storage_prefetch_policy"] = to_string(args.hicache.prefetch_policy);
  }
  rows["hicache_host_tokens"] = std::to_string(choice.config.tier.tokens);
}

}  // namespace tpsim::launch
