#include "launch/run_monitor.h"

#include "proto/stop_flag.h"
#include "rank/parallel/rank_lost.h"

namespace tpsim::launch {

bool RunMonitor::on_progress(const scheduler::Progress& progress) {
  progress_.update(progress);
  return sink_.on_progress(progress) && !StopFlag::requested();
}

scheduler::StepOutcome LossTolerantExecutor::forward(const proto::ForwardBatch& batch) {
  try {
    return inner_.forward(batch);
  } catch (const rank::RankLost& lost) {
    loss_ = lost.what();
    throw scheduler::ExecutorLost(lost.what());
  } catch (const Stopped& stopped) {
    throw scheduler::ExecutorLost(stopped.what());
  }
}

}  // namespace tpsim::launch
