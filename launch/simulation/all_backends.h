// `tpsim compare --attention-backends all`: every backend that can serve the deployment, alone, and every
// pair of them, with a reason for each that cannot.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/flags/server_args.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

struct AllBackends {
  struct Entry {
    std::string backends;  // "fa3", "fa4+triton"
    std::string reason;    // a sentence
  };
  std::vector<BackendPair> pairs;  // lone backends first, in the order of the list
  std::vector<Entry> refused;      // lone backends, and pairs whose halves could serve with others
  // Pairs that could be run, but are not worth it: a half that no CUDA graph captures, where others are. One
  // entry for each such backend; name the pairs to run them.
  std::vector<Entry> left_out;
};
// Of --hardware, --model-path, --kv-cache-dtype and --page-size. Of several settings of a sweep, which have
// one model, what runs in any of them is included. Throws UserError for unknown names and where nothing is
// left. REQUIRES: at least one setting.
AllBackends all_backends(std::span<const ServerArgs> settings);

// What a comparison was asked for beside its runs.
void note_in(const AllBackends& all, proto::ComparisonReport& report);

}  // namespace tpsim::launch
