// The model that drafts: its attention backend, formats and share of the GPUs, where the flags do not say as
// the target has them.
#pragma once

#include <string>

#include "launch/deployment/attention.h"
#include "launch/deployment/speculation.h"
#include "launch/flags/server_args.h"
#include "proto/base/number_format.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/memory.h"

namespace tpsim::launch {

struct Draft {
  std::string backend;  // empty: no model drafts
  NumberFormat kv_format = NumberFormat::kBf16;
  rank::ParallelLayout layout;  // as the target's, or each data-parallel rank has a model of its own
  bool extend_captured = true;
};
// Throws UserError.
Draft resolve_draft(const ServerArgs& args, const proto::HardwareProfile& hardware,
                    const rank::ModelConfig& model, const Speculation& speculation,
                    const AttentionChoice& attention, const rank::ParallelLayout& layout);

// What it takes of the memory that is shared with the pool.
rank::DraftMemory draft_memory(const BatchArgs& args, const rank::ModelConfig& model,
                               const Speculation& speculation, const Draft& draft);

}  // namespace tpsim::launch
