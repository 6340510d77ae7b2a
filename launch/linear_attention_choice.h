// Models with gated delta-net layers: whose kernels run them, and how the radix pool keeps their states. What
// the user said, and for the rest what SGLang would take.
//
// Source: SGLang 0.5.23 arg_groups/overrides.py (_mamba_radix_cache_resolution), arg_groups/mamba_hook.py,
// arg_groups/attention_hook.py (handle_linear_attn_backend), layers/attention/linear/gdn_backend.py
// (flashinfer_gdn_prefill_default, GDNKernelDispatcher), mem_cache/kv_cache_configurator.py
// (_calculate_mamba_ratio).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/model/linear_attention_cost.h"
#include "rank/model/model_config.h"
#include "scheduler/config.h"

namespace tpsim::launch {

// --mamba-radix-cache-strategy, resolved, in `config`: with a radix pool, its states' rules but for the size
// of their pool; overlap scheduling is off where the strategy asks for that. Without one, nothing. What was
// chosen, or changed of what was said, is added to `notes`. Throws UserError for what SGLang refuses.
// REQUIRES: page size, overlap and radix pool are resolved but for this.
void resolve_state_cache(const ServerArgs& args, const proto::HardwareProfile& hardware,
                         const rank::ModelConfig& model, scheduler::SchedulerConfig& config,
                         std::vector<std::string>& notes);
// "extra_buffer" or "no_buffer".
std::string_view state_strategy(const scheduler::SchedulerConfig& config);
// States of the pool that SGLang counts for each running request.
std::uint32_t state_slots_per_request(const scheduler::SchedulerConfig& config);

// --linear-attn-backend and what overrides it in passes that prefill or decode. Throws UserError for what the
// device cannot run. REQUIRES: the chunk size is resolved.
rank::LinearAttnBackends choose_linear_attention(const ServerArgs& args,
                                                 const proto::HardwareProfile& hardware,
                                                 const rank::ModelConfig& model,
                                                 const scheduler::SchedulerConfig& config,
                                                 std::vector<std::string>& notes);

}  // namespace tpsim::launch
