// What `tpsim compare` compares: the product of every list that a flag was given and of the attention
// backends; and which backends `--attention-backends all` means.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"
#include "launch/flags/server_args.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

inline constexpr std::size_t kMaxSettings = 512;

// "--page-size" -> "page_size".
std::string axis_name(const std::string& flag);

struct Setting {
  ServerArgs args;                            // attention_backends has one pair, or none where none was given
  std::map<std::string, std::string> values;  // of the axes, by SweepAxis::flag
};

struct Sweep {
  proto::Sweep axes;
  std::vector<Setting> settings;  // the last axis varies fastest
};

// What `flags`, which were read into `args`, ask for; without a list there are no axes and no settings.
// `args` is left as the last setting. Throws UserError for more than kMaxSettings.
Sweep expand_sweep(FlagSet& flags, ServerArgs& args);

// "24 settings: 2 of --tp-size x 3 of --request-rate x …".
std::string describe(const Sweep& sweep);

// `--attention-backends all`: every backend that can serve the deployment, alone, and every pair of them,
// with a reason for each that cannot.
struct AllBackends {
  std::vector<BackendPair> pairs;  // lone backends first, in the order of the list
  // What a comparison was asked for beside its runs. `refused`: lone backends, and pairs whose halves could
  // serve with others. `left_out`: pairs that could be run, but are not worth it: a half that no CUDA graph
  // captures, where others are; name the pairs to run them.
  proto::ComparisonReport others;
};
// Of --hardware, --model-path, --kv-cache-dtype and --page-size. Of several settings of a sweep, which have
// one model, what runs in any of them is included. Throws UserError for unknown names and where nothing is
// left. REQUIRES: at least one setting.
AllBackends all_backends(std::span<const ServerArgs> settings);

}  // namespace tpsim::launch
