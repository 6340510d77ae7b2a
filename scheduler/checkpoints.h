// Where a run leaves its state now and then, to be gone on with after the process was killed.
#pragma once

#include <string_view>

#include "proto/base/archive.h"

namespace tpsim::scheduler {

class Checkpoints {
 public:
  virtual ~Checkpoints() = default;

  // State that a run of the same configuration, load and workload left; empty: the run begins at its
  // beginning. Valid until the run has read it.
  virtual std::string_view resumed() = 0;
  // After the run has read its own part: what else save() added.
  virtual void read_rest(StateReader& state) = 0;

  // Asked between two events. Whether the run should leave its state now.
  virtual bool due() = 0;
  // `state` has the run's part; what else goes on with the run (executor, records) is added and all is put
  // away. Throws UserError where it cannot be.
  virtual void save(StateWriter& state) = 0;
};

}  // namespace tpsim::scheduler
