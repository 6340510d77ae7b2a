#include "launch/simulation/run_monitor.h"

#include "proto/base/stop_flag.h"

namespace tpsim::launch {

bool RunMonitor::on_progress(const scheduler::Progress& progress) {
  progress_.update(progress);
  return sink_.on_progress(progress) && !StopFlag::requested();
}

scheduler::StepOutcome LossTolerantExecutor::forward(const proto::ForwardBatch& batch) {
  try {
    return inner_.forward(batch);
  } catch (const scheduler::ExecutorLost& lost) {
    loss_ = lost.what();
    throw;
  } catch (const Stopped& stopped) {
    throw scheduler::ExecutorLost(stopped.what());
  }
}

}  // namespace tpsim::launch
