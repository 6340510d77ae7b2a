// The settings of `tpsim compare`: the product of every list that a flag was given and of the attention
// backends.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"
#include "launch/flags/server_args.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

inline constexpr std::size_t kMaxSettings = 512;

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

}  // namespace tpsim::launch
