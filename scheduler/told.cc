#include "scheduler/told.h"

#include <utility>

namespace tpsim::scheduler {

void Told::on_step(const StepRecord& record, double gpu_seconds, bool computed, double now) {
  events_.push_back(Step{record, {record.stages.begin(), record.stages.end()}, gpu_seconds, computed, now});
}

void Told::on_finished(const RequestRecord& record, const char* because) {
  events_.push_back(Finished{record, {record.interruptions.begin(), record.interruptions.end()}, because});
}

void Told::tell(std::size_t turn, RunListener& to) const {
  const std::size_t end = turn + 1 < turns_.size() ? turns_[turn + 1].first : events_.size();
  for (std::size_t i = turns_[turn].first; i < end; ++i) {
    if (const auto* const tokens = std::get_if<Tokens>(&events_[i])) {
      to.on_inter_token(tokens->gap, tokens->count);
    } else if (const auto* const step = std::get_if<Step>(&events_[i])) {
      StepRecord record = step->record;
      record.stages = step->stages;
      to.on_step(record, step->gpu_seconds, step->computed, step->now);
    } else {
      const auto& finished = std::get<Finished>(events_[i]);
      RequestRecord record = finished.record;
      record.interruptions = finished.interruptions;
      to.on_finished(record, finished.because);
    }
  }
}

}  // namespace tpsim::scheduler
