#include "launch/flags/state_flags.h"

#include <string_view>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {

void declare_states(FlagSet& flags, StateArgs& args) {
  flags.add_value("--mamba-full-memory-ratio", "RATIO",
                  "memory for the states of gated delta-net layers to that of the KV cache (default 0.9)",
                  real(args.mamba_full_memory_ratio, 0, false, 1000, true));
  flags.add_value(
      "--max-mamba-cache-size", "N",
      "such states that there is room for, a few for each running request (default: by the ratio)",
      count(args.max_mamba_cache_size, 1));
  flags.add_value("--mamba-ssm-dtype", "TYPE",
                  "of such states: float32, bfloat16 or float16 (default: the model's)",
                  word({"float32", "bfloat16", "float16"}, args.mamba_ssm_dtype));
  // --mamba-scheduler-strategy: its name before 0.5.23.
  for (const char* flag : {"--mamba-radix-cache-strategy", "--mamba-scheduler-strategy"}) {
    flags.add_value(
        flag, "NAME", "how the radix cache gets such states: auto, no_buffer or extra_buffer (default auto)",
        [&args](std::string_view name, const std::string& value) {
          if (value == "extra_buffer_lazy")
            throw_user_error("{} {}: is not simulated; use extra_buffer", name, value);
          word({"auto", "no_buffer", "extra_buffer"}, args.mamba_radix_cache_strategy)(name, value);
        });
  }
  flags.add_value("--mamba-track-interval", "TOKENS",
                  "between the states that it gets of a request that decodes (default 256)",
                  count(args.mamba_track_interval, 1));
  const auto linear = [&flags](const char* flag, const char* help, std::string& out) {
    flags.add_value(flag, "NAME", help, [&out](std::string_view name, const std::string& value) {
      if (value == "flashkda" || value == "nvidia_kda" || value == "ptx_kda" || value == "helion")
        throw_user_error(
            "{} {}: its kernels are for Kimi delta attention; gated delta-nets run triton, cutedsl or "
            "flashinfer",
            name, value);
      if (value == "intel_xpu")
        throw_user_error("{} {}: Intel's fused kernel is not simulated; use triton", name, value);
      word({"triton", "cutedsl", "flashinfer"}, out)(name, value);
    });
  };
  linear("--linear-attn-backend",
         "kernels of gated delta-net layers: triton, cutedsl or flashinfer (default triton)",
         args.linear_attn_backend);
  linear("--linear-attn-decode-backend", "the same for decoding (default: as --linear-attn-backend)",
         args.linear_attn_decode_backend);
  linear("--linear-attn-prefill-backend",
         "the same for prefill (default: as --linear-attn-backend, or flashinfer where SGLang takes it)",
         args.linear_attn_prefill_backend);
}

}  // namespace tpsim::launch
