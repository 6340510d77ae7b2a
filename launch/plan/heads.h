// Speculative decoding in a plan: which heads draft for a model, the settings that are tried with them, and
// from which acceptance on one of them pays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/deployment/acceptance.h"
#include "launch/plan/space.h"
#include "proto/report.pb.h"
#include "rank/config/model_config.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

struct PlanHead {
  std::string algorithm;      // --speculative-algorithm
  std::string path;           // --speculative-draft-model-path; empty: a layer of the model itself
  bool chains_alone = false;  // as many drafts must be said
};
// The model's own layer for the next token, and the EAGLE3 heads that the catalogue has for it. None where
// nobody published how often such drafts are right. Of DeepSeek-V4 SGLang takes NEXTN's other name alone,
// EAGLE, and drafts that are said to be a chain (deepseek_v4_hook.py).
std::vector<PlanHead> heads_for(const rank::ModelConfig& model);

// Adds setting `plain` of the space with `head`, once for each number of drafts: SGLang's own choice for the
// model (speculative_hook.py of 0.5.23), and the chains of three, two and one of its cookbook (DeepSeek-R1,
// GLM-5.2, DeepSeek-V3.2 and V4). None of them drafts further than acceptance was published for a layer that
// drafts. Returns false where the first of these cannot be carried out; that is the only one added then.
bool add_with_head(PlanSpace& space, std::size_t plain, const PlanHead& head);

// Whether the setting drafts.
bool speculates(const Setting& setting);

// Of a setting that drafts: acceptance that nobody stated.
std::optional<PublishedAcceptance> assumed_acceptance(const Setting& setting);

// Tokens that the run kept of a step, in the mean; 1 without speculation.
double kept_tokens(const proto::RunReport& run);

// Tokens of a step from which on `setting`, which drafts and whose run with the acceptance `assumed` is
// `run`, ranks before `plain` by rank_runs(): found to a thirtieth of `assumed`, in five runs of the
// workload. Nothing where `run` does not rank before it, or go_on() says no.
std::optional<double> pays_from(const Setting& setting, const proto::RunReport& run, double assumed,
                                const proto::RunReport& plain, const scheduler::StreamedWorkload& workload,
                                double share, const std::function<bool()>& go_on);

}  // namespace tpsim::launch
