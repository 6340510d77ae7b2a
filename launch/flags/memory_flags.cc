#include "launch/flags/memory_flags.h"

#include "launch/cli/flag_values.h"

namespace tpsim::launch {

void declare_memory(FlagSet& flags, MemoryArgs& args) {
  flags.add_value("--mem-fraction-static", "SHARE",
                  "of GPU memory for weights and KV cache (default: from GPU, --tp and batch sizes)",
                  real(args.mem_fraction_static, 0, false, 1, false));
  flags.add_value("--max-total-tokens", "TOKENS", "of the KV pool (default: what fits)",
                  count(args.max_total_tokens, 1, 1'000'000'000'000));
  flags.add_value("--max-running-requests", "N", "at once (default: from the pool and the context length)",
                  count(args.max_running_requests, 1));
  flags.add_value("--swa-full-tokens-ratio", "RATIO",
                  "tokens of the pool of sliding-window layers to those of the others' (default 0.8; gpt-oss "
                  "and Llama 4 have such a pool)",
                  real(args.swa_full_tokens_ratio, 0, false, 1, true));
  flags.add_switch("--disable-hybrid-swa-memory", "one KV pool for sliding-window layers and all others",
                   args.disable_hybrid_swa_memory);
}

}  // namespace tpsim::launch
