// An executor of the scheduler that stands for a whole deployment and can say, at the end, what each of its
// ranks did.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/executor.h"

namespace tpsim {
class StateReader;
class StateWriter;
}  // namespace tpsim

namespace tpsim::rank {

// what() is a sentence that names the ranks and their process. tpsim writes its report and exits with 3.
class RankLost : public scheduler::ExecutorLost {
 public:
  using ExecutorLost::ExecutorLost;
};

// Ranks that do the same in every pass: of one pipeline stage and data-parallel rank, equally slow.
struct RankGroup {
  std::uint32_t stage = 0;
  std::vector<std::uint32_t> ranks;  // ascending
};

// One pass of such a rank; seconds, all layers together.
struct RankSeconds {
  double encoder = 0;
  double attention = 0;
  double gemm = 0;
  double other = 0;
  double launch = 0;
  double wait = 0;  // for the slowest rank of its stage
  double collective = 0;
};

class DeploymentExecutor : public scheduler::Executor {
 public:
  // Ends the run and returns the report of every rank, in rank order; the same for any number of processes.
  // REQUIRES: called once, after the last forward(). Throws what forward() throws.
  virtual std::vector<proto::RankReport> finish() = 0;

  // Ranks that do the same in every pass; none where passes are computed, whose parts nobody times.
  virtual std::vector<RankGroup> rank_groups() const { return {}; }
  // What each of them spent in the pass of the last forward().
  virtual void last_pass(std::vector<RankSeconds>& seconds) const { seconds.clear(); }

  // State of a checkpoint (proto/base/archive.h), between two forward(). One that cannot go on from it throws
  // std::logic_error.
  virtual void save(StateWriter&) { throw std::logic_error("no checkpoint of this executor"); }
  virtual void load(StateReader&) { throw std::logic_error("no checkpoint of this executor"); }
};

}  // namespace tpsim::rank
