// The host tier of the prefix cache (--enable-hierarchical-cache): what SGLang makes of its flags, how large
// it is, and what its copies cost on this GPU.
#pragma once

#include <string>

#include "attention/gpu_generation.h"
#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "scheduler/hicache/hicache_config.h"

namespace tpsim::launch {

// What copies, and from which layout.
struct HiCacheIo {
  attention::GpuGeneration generation = attention::GpuGeneration::kHopper;
  bool direct = false;  // --hicache-io-backend direct
  std::string layout;
};
// Changes `backends` where SGLang does: its kernels that copy do not go with fa3's decode before 0.5.23.
// `decode_named`: by a flag of its own. Without --enable-hierarchical-cache nothing.
HiCacheIo choose_hicache_io(const ServerArgs& args, const rank::ModelConfig& model,
                            attention::GpuGeneration generation, bool decode_named, BackendPair& backends,
                            Notes& notes, Notes& warnings);

struct HiCacheChoice {
  HiCacheIo io;
  scheduler::HiCacheConfig config;
  double ratio = 0;
  Notes notes;
};
// What a rank's pool of KV is, and of how many layers.
struct KvPoolShape {
  std::uint64_t tokens = 0, bytes_per_token = 0;
  std::uint32_t page_size = 1, layers = 1;
  std::uint32_t ranks = 1;  // that have a share of each token
  bool windows = false, states = false;
};
// Throws UserError for what it is not simulated with, or what SGLang refuses.
HiCacheChoice resolve_hicache(const ServerArgs& args, const proto::HardwareProfile& hardware,
                              const rank::ModelConfig& model, const HiCacheIo& io, const KvPoolShape& pool,
                              bool speculates_with_head, bool radix_cache);
// Whether passes that prefill are captured beside it.
bool hicache_captures_prefills(const ServerArgs& args);

// Without a tier nothing.
void write_hicache(const ServerArgs& args, const HiCacheChoice& choice, Rows& rows);

}  // namespace tpsim::launch
