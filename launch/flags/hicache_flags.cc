#include "launch/flags/hicache_flags.h"

#include <array>
#include <string_view>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::array<Named<kvcache::WritePolicy>, 3> kWritePolicies = {{
    {"write_back", kvcache::WritePolicy::kWriteBack},
    {"write_through", kvcache::WritePolicy::kWriteThrough},
    {"write_through_selective", kvcache::WritePolicy::kWriteThroughSelective},
}};

constexpr std::array<Named<scheduler::PrefetchPolicy>, 3> kPrefetchPolicies = {{
    {"best_effort", scheduler::PrefetchPolicy::kBestEffort},
    {"wait_complete", scheduler::PrefetchPolicy::kWaitComplete},
    {"timeout", scheduler::PrefetchPolicy::kTimeout},
}};

}  // namespace

void declare_hicache(FlagSet& flags, HiCacheArgs& args) {
  flags.add_switch("--enable-hierarchical-cache,--enable-hicache",
                   "copies of cached KV in host memory, loaded back when their prefix comes again",
                   args.enable);
  flags.add_value("--hicache-ratio", "RATIO",
                  "tokens of the pool in host memory to those of the device's (default 2)",
                  real(args.ratio, 0, false, 1e6, true));
  flags.add_value("--hicache-size", "GB",
                  "of that pool, of each rank; over the ratio (default 0: by the ratio)",
                  count(args.size, 0, 1'000'000));
  flags.add_value("--hicache-write-policy", "NAME",
                  "when KV is copied: write_through (its first use), write_through_selective (the second) or "
                  "write_back (when the device evicts it; default write_through)",
                  choice(kWritePolicies, args.write_policy));
  flags.add_value("--hicache-io-backend", "NAME", "what copies: kernel or direct (default kernel)",
                  [&args](std::string_view flag, const std::string& value) {
                    if (value == "kernel_ascend")
                      throw_user_error("{} {}: is for Ascend and is not simulated; use kernel or direct",
                                       flag, value);
                    word({"kernel", "direct"}, args.io_backend)(flag, value);
                  });
  flags.add_value("--hicache-mem-layout", "NAME",
                  "of that pool: layer_first, page_first or page_first_direct (default: the release's)",
                  [&args](std::string_view flag, const std::string& value) {
                    if (value == "page_first_kv_split" || value == "page_head")
                      throw_user_error(
                          "{} {}: is not simulated; use layer_first, page_first or page_first_direct", flag,
                          value);
                    word({"layer_first", "page_first", "page_first_direct"}, args.mem_layout)(flag, value);
                  });
  flags.add_value("--hicache-storage-backend", "NAME",
                  "storage behind that pool: file, or another of SGLang's with --hicache-storage-bandwidth",
                  [&args](std::string_view flag, const std::string& value) {
                    if (value == "npu_memcache")
                      throw_user_error("{} {}: is for Ascend and is not simulated; use file", flag, value);
                    word({"file", "mooncake", "hf3fs", "nixl", "aibrix", "dynamic", "eic", "simm", "sim",
                          "mori", "shm", "tensorcast", "seaweedfs"},
                         args.storage_backend)(flag, value);
                  });
  flags.add_value(
      "--hicache-storage-prefetch-policy", "NAME",
      "how long a request waits for its prefix from storage: best_effort (not at all), wait_complete "
      "or timeout (1 s and 0.25 s a 1,024 tokens; default timeout)",
      choice(kPrefetchPolicies, args.prefetch_policy));
  flags.add_value("--hicache-storage-bandwidth", "GB/S",
                  "of reads from storage, all ranks together (default of file: 1.5)",
                  real(args.storage_bandwidth, 0, false, 1e6, true));
  flags.add_value("--hicache-storage-write-bandwidth", "GB/S",
                  "of writes (default: as of reads, of file 0.6)",
                  real(args.storage_write_bandwidth, 0, false, 1e6, true));
  flags.add_value("--hicache-storage-latency-ms", "MS",
                  "of each request to storage, of 128 pages (default 0)",
                  real(args.storage_latency_ms, 0, true, 1e6, true));
}

std::string_view to_string(scheduler::PrefetchPolicy policy) { return name_of(kPrefetchPolicies, policy); }

std::string_view to_string(kvcache::WritePolicy policy) { return name_of(kWritePolicies, policy); }

}  // namespace tpsim::launch
