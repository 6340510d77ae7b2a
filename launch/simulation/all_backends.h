// `tpsim compare --attention-backends all`: every backend that can serve the deployment, alone, and every
// pair of them, with a reason for each that cannot.
#pragma once

#include <span>
#include <vector>

#include "launch/flags/server_args.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

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
