// Speculative decoding of a deployment: what the flags leave open is chosen as SGLang chooses it, what cannot
// be is refused.
//
// Source: SGLang 0.5.23 arg_groups/speculative_hook.py (_handle_eagle_family, _handle_ngram,
// _auto_choose_speculative_params), 0.5.12 server_args.py (_handle_speculative_decoding), and the rules of
// the attention backend documentation, which attention/selection/combination.cc has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/backend_description.h"
#include "launch/deployment/acceptance.h"
#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/host.pb.h"
#include "proto/report.pb.h"
#include "rank/config/shard.h"
#include "rank/llm/draft_model.h"
#include "rank/llm/memory.h"
#include "rank/llm/speculative_forward.h"
#include "scheduler/config.h"
#include "scheduler/releases/sglang_release.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// --max-running-requests with speculative decoding (speculative_hook.py).
inline constexpr std::uint32_t kSpeculativeRunningRequests = 48;

struct Speculation {
  scheduler::SpeculationConfig config;  // not enabled: the rest is empty
  std::string algorithm;                // SGLang's name: EAGLE, EAGLE3, STANDALONE, NGRAM
  std::optional<rank::DraftModel> draft;
  rank::DraftHost host;
  // --speculative-num-draft-tokens is not what was asked for: a chain verifies one more than it has steps.
  bool draft_tokens_adjusted = false;
  std::uint32_t longest_accepted = 0;          // tokens that a request can keep of a step; modeled execution
  bool verifies_with_prefill = true;           // --speculative-attention-mode
  std::optional<PublishedAcceptance> assumed;  // acceptance that nobody stated
  Switches switches;
  Notes notes, warnings;

  // With data-parallel attention: each data-parallel rank has a draft model of its own (SINGLE_GROUP of
  // speculative/draft_parallel.py, draft_tp_context of 0.5.12's eagle_worker.py).
  bool drafts_alone(const rank::ParallelLayout& layout) const {
    return layout.dp_size > 1 && draft && draft->kind == rank::DraftKind::kEagle3;
  }
};
// Throws UserError.
Speculation resolve_speculation(const ServerArgs& args, const proto::HostProfile& host,
                                const rank::ModelConfig& model);

// What the choice of attention backends has to know of it.
void select_for_speculation(const ServerArgs& args, const rank::ModelConfig& model,
                            attention::Selection& selection);

// What SGLang keeps free for a draft model besides the pool; 0 in releases that take it from the pool.
std::uint64_t draft_reserve_mib(const ServerArgs& args, const Speculation& speculation);
// Throws UserError where a trace names lengths that cannot be, or (`from_trace`) names none.
void check_accept_lens(const Speculation& speculation, bool from_trace,
                       const scheduler::WorkloadOutline& workload);

void write_speculation(const ServerArgs& args, const Speculation& speculation, Rows& rows);
// Once the run is over: the shares of its steps.
void write_speculation_shares(proto::RunReport& report);

}  // namespace tpsim::launch
