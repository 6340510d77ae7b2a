// States of gated delta-net layers, and the kernels of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct StateArgs {
  std::optional<double> mamba_full_memory_ratio;      // default 0.9
  std::optional<std::uint32_t> max_mamba_cache_size;  // states
  std::string mamba_ssm_dtype = "auto";
  std::string mamba_radix_cache_strategy = "auto";    // auto, no_buffer, extra_buffer
  std::optional<std::uint32_t> mamba_track_interval;  // tokens; default 256
  // Empty: open.
  std::string linear_attn_backend, linear_attn_decode_backend, linear_attn_prefill_backend;
};

void declare_states(FlagSet& flags, StateArgs& args);

}  // namespace tpsim::launch
