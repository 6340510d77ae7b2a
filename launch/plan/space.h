// The settings that `tpsim plan` chooses among: every way to share a model among so many GPUs, with every
// attention backend that can serve it and what else decides how fast it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launch/cli/flag_set.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/sweep.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

inline constexpr std::size_t kMaxPlanned = 20'000;

// Flags and values of one setting, beside what the user gave.
using FlagValues = std::map<std::string, std::string>;

struct PlanSpace {
  proto::Sweep axes;                 // what varies, and its values in order of appearance
  std::vector<Setting> settings;     // those that set fewer flags first, within a layout and a backend
  std::vector<std::uint32_t> gpus;   // of each setting
  std::vector<std::string> layouts;  // of each setting: how GPUs share the model, as flags
  // Of each setting: those of one number differ in chunk size and schedule policy alone, and the first of
  // them leaves both to SGLang.
  std::vector<std::uint32_t> groups;
  AllBackends backends;  // which can serve, and why others cannot
};

// How `gpus` GPUs can share a model: tensor parallel groups with pipeline stages, replicas behind a router,
// data-parallel attention, and, of a model with experts, these spread over the GPUs. Flags that `flags` were
// given are held to: --tp-size 4,8 leaves those two. What SGLang or tpsim refuses is among them.
std::vector<FlagValues> plan_layouts(const FlagSet& flags, std::uint32_t gpus, bool experts);

// The product of layouts, backends and of chunk size, mixed chunks and schedule policy, where these were not
// given; a list that was given for any other flag is an axis, too. `args`, into which `flags` read, is left
// as it was. Throws UserError where nothing can be shared out so, and for more than kMaxPlanned of a number.
PlanSpace plan_space(const FlagSet& flags, ServerArgs& args, const std::vector<std::uint32_t>& gpus);

// Adds `setting`, a changed copy of setting `like` of the space, with `flags` of its own and those that it
// has; alone in its group.
void add_setting(PlanSpace& space, std::size_t like, Setting setting,
                 const std::vector<std::pair<std::string, std::string>>& flags, std::string layout);

// Adds setting `replicas` of the space, whose servers stand behind a router, with `prefill` of its servers
// that prefill and the others that decode (--pd-disaggregation). REQUIRES: 0 < prefill < its replicas.
void add_pairs(PlanSpace& space, std::size_t replicas, std::uint32_t prefill);

}  // namespace tpsim::launch
