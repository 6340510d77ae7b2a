// A rank is gone or does not answer: the run cannot go on, but what was finished can be reported.
#pragma once

#include <string>

#include "scheduler/executor.h"

namespace tpsim::rank {

// what() is a sentence that names the ranks and their process. tpsim writes its report and exits with 3.
class RankLost : public scheduler::ExecutorLost {
 public:
  using ExecutorLost::ExecutorLost;
};

}  // namespace tpsim::rank
