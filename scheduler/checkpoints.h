// Runs that go on after their process was killed.
#pragma once

#include <functional>
#include <string_view>

#include "proto/base/archive.h"

namespace tpsim::scheduler {

// Where a run leaves its state now and then, to be gone on with after the process was killed.
class Checkpoints {
 public:
  virtual ~Checkpoints() = default;

  // State that a run of the same configuration, load and workload left; empty: the run begins at its
  // beginning. Valid until read_rest().
  virtual std::string_view resumed() = 0;
  // After the run has read its own part: what else save() added.
  virtual void read_rest(StateReader& state) = 0;

  // Asked between two events. Whether the run should leave its state now.
  virtual bool due() = 0;
  // The state is put away: what `write_run` writes, the run's part, and what else goes on with it (executor,
  // records). Throws UserError where a run could not be gone on with.
  virtual void save(const std::function<void(StateWriter&)>& write_run) = 0;
};

}  // namespace tpsim::scheduler
