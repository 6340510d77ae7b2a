// The best settings of a space: what cannot be carried out is refused, what is the same as another is left
// out, the rest serves the beginning of the load, and the best of that all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/cli/terminal.h"
#include "launch/flags/server_args.h"
#include "launch/plan/crew.h"
#include "launch/plan/heads.h"
#include "launch/plan/space.h"
#include "proto/report.pb.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

struct PlanSearch {
  std::map<std::string, std::uint32_t> refused;  // settings by the sentence that refuses them
  std::uint32_t twins = 0;        // settings that come to the same deployment as one with fewer flags
  std::uint32_t passed_over = 0;  // settings whose group's first was none of the best
  struct Round {
    std::uint64_t requests = 0;  // the first so many of the load
    std::uint32_t settings = 0;  // that served them
  };
  std::vector<Round> rounds;   // the last one is of all requests, by the finalists
  std::uint32_t hopeless = 0;  // of the first round, too slow to be among the best; see search_plan()
  struct Finalist {
    std::size_t setting = 0;  // of the space
    proto::RunReport report;  // of all of the load
  };
  std::vector<Finalist> finalists;                          // in the order of the space
  std::shared_ptr<const scheduler::StreamedWorkload> load;  // all of it
};

// What a search is told beside its space.
struct PlanWishes {
  double share = 1;    // of requests within their service levels, where there are levels
  bool pairs = false;  // adds servers that prefill and servers that decode
  // Settings that do not keep that share are no answer, for more GPUs are to be asked about: without any that
  // does there are no finalists. Of one load with levels.
  bool hold = false;
  std::vector<PlanHead> heads;  // adds settings that draft with each of them
};

// Searches `space` on `threads` threads of this process and, with it, on those of all of `crew`. The first
// setting of each group, and all of the best quarter of the groups (kGroups at least, and the best of each
// layout), serve the first 300 requests, a quarter 1,000, and kFinalists of each number of GPUs all of them,
// each time with the best of each layout; a load of no more than twice as many is served whole at once. A
// setting whose clock runs beyond what 1.5 times the time of the best of the layouts' first settings allows
// (of requests within their service levels, where there are levels, in the time it took) can be none of the
// best, and is stopped. With --max-goodput-rate it is one that cannot keep 1 / 1.5 of the highest rate found
// so far, of the 1,000 requests 1 / 1.2 of what the best of the first round keep. Where one is known to keep
// wishes.share of all requests within their levels, as the best of the first round is asked, others are
// stopped at the first bad request that is one too many for that, but for the best of each layout; with
// wishes.hold these, too, and in the first round where no lead can hold. Ranks are those of rank_runs(); the
// outcome depends on neither `threads` nor `crew`. Throws UserError where no setting can be
// carried out, Stopped after a signal.
//
// With wishes.pairs, servers that prefill and servers that decode are added to the space, and searched with
// the rest, where replicas are in it: for each number of GPUs those of the best kAddedLayouts layouts of
// replicas, the best setting of each and the best that leaves chunks and policy to SGLang. As many servers
// prefill as prefills take of the replicas' time, rounded down and up. In the same way what add_with_head()
// makes of the best layouts of whole servers is added for each of wishes.heads, and then pairs of the best of
// these replicas.
inline constexpr std::size_t kFinalists = 16, kGroups = 48, kAddedLayouts = 3;
PlanSearch search_plan(const ServerArgs& args, PlanSpace& space, const PlanWishes& wishes,
                       const PlanCrew& crew, std::uint32_t threads, ProgressBar& progress);

}  // namespace tpsim::launch
