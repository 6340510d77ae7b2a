// Pools of KV and of window layers, and how many requests share them.
#pragma once

#include <cstdint>
#include <optional>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct MemoryArgs {
  std::optional<double> mem_fraction_static;
  bool decodes_alone = false;  // no flag: it is for a decode server (decode_side_args)
  std::optional<std::uint64_t> max_total_tokens;
  std::optional<std::uint32_t> max_running_requests;
  std::optional<double> swa_full_tokens_ratio;  // default 0.8
  bool disable_hybrid_swa_memory = false;
};

void declare_memory(FlagSet& flags, MemoryArgs& args);

}  // namespace tpsim::launch
