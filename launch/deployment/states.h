// Models with gated delta-net layers: whose kernels run them, and how the radix pool keeps their states. What
// the user said, and for the rest what SGLang would take.
//
// Source: SGLang 0.5.23 arg_groups/overrides.py (_mamba_radix_cache_resolution), arg_groups/mamba_hook.py,
// arg_groups/attention_hook.py (handle_linear_attn_backend), layers/attention/linear/gdn_backend.py
// (flashinfer_gdn_prefill_default, GDNKernelDispatcher), mem_cache/kv_cache_configurator.py
// (_calculate_mamba_ratio).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/llm/linear_attention_cost.h"
#include "rank/llm/memory.h"
#include "scheduler/config.h"

namespace tpsim::launch {

// Bytes of an element of a state. Throws UserError for flags that are about states where `model` has none.
std::uint32_t state_bytes(const StateArgs& args, const rank::ModelConfig& model);

struct States {
  scheduler::StateConfig config;          // but for the size of the pool
  std::uint32_t slots_per_request = 1;    // of the pool, as SGLang counts them for a running request
  rank::LinearAttnBackends kernels = {};  // modeled execution
  Switches switches;
  Notes notes;
};
// `chunk`: of prefill on a data-parallel rank, tokens; 0: there are none. Throws UserError for what SGLang
// refuses or the device cannot run.
States resolve_states(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ModelConfig& model, std::uint32_t page_size, std::uint32_t chunk,
                      const scheduler::SpeculationConfig& speculation, Switches switches);

// What is said of their pool on one of `dp_size` data-parallel ranks.
rank::StatePool state_pool(const ServerArgs& args, const States& states,
                           const scheduler::SpeculationConfig& speculation, std::uint32_t dp_size);

// `slots`: states that there is room for.
void write_states(const StateArgs& args, const rank::ModelConfig& model, const States& states,
                  double full_memory_ratio, std::uint64_t slots, Rows& rows);

}  // namespace tpsim::launch
