// The memory of a deployment: pools of KV, of window layers and of states, and how many requests share them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/attention.h"
#include "launch/deployment/batches.h"
#include "launch/deployment/parallel.h"
#include "launch/deployment/speculation.h"
#include "launch/deployment/states.h"
#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/llm/memory.h"

namespace tpsim::launch {

// Rows of the request-to-page table that ranks can hold (rank/parallel/rank_state.h).
inline constexpr std::uint32_t kMaxRunningRequests = 65535;

// Flags that are about the pool of window layers, for a model that may have one. Throws UserError.
void check_window_flags(const MemoryArgs& args, const rank::ModelConfig& model);

// Of one data-parallel rank.
struct Memory {
  double mem_fraction_static = 0;
  std::vector<rank::KvCapacity> stages;  // what would fit each pipeline stage; all have the least
  std::uint64_t tokens = 0;              // of the KV pool, a multiple of the page size
  rank::WindowPool windows;              // of window layers with a pool of their own
  std::uint64_t window_tokens = 0;
  rank::StatePool states;                  // as it was asked for
  std::uint64_t state_slots = 0;           // states that there is room for
  std::uint64_t verified_state_bytes = 0;  // of each GPU, for those after tokens that are verified
  std::uint64_t kv_bytes_per_token = 0;
  std::uint32_t max_running_requests = 0;
  Notes notes;
};
// `context_length` in tokens; `switches` as all subjects leave them. Throws UserError for flags that leave no
// room.
Memory resolve_memory(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ModelConfig& model, const Speculation& speculation,
                      const AttentionChoice& attention, const SparseAttention& sparse,
                      const rank::ParallelLayout& layout, const Batches& batches, const States& states,
                      const Pipeline& pipeline, const Graphs& graphs, const rank::DraftMemory& draft,
                      std::uint32_t context_length);

void write_memory(const Memory& memory, const rank::ModelConfig& model, Rows& rows);

}  // namespace tpsim::launch
