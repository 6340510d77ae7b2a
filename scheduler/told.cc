#include "scheduler/told.h"

#include <utility>

namespace tpsim::scheduler {

void Told::on_step(const StepRecord& record, bool computed, double now) {
  Step step{record, {record.stages.begin(), record.stages.end()}, computed, now};
  step.record.stages = {};
  events_.push_back(std::move(step));
}

void Told::on_finished(const RequestRecord& record, const char* because) {
  Finished finished{record, {record.interruptions.begin(), record.interruptions.end()}, {}};
  finished.record.interruptions = {};
  if (because != nullptr) finished.because = because;
  events_.push_back(std::move(finished));
}

void Told::tell(std::size_t turn, RunListener& to) const {
  for (std::size_t i = turns_[turn].first; i < end_of(turn); ++i) {
    if (const auto* const step = std::get_if<Step>(&events_[i])) {
      StepRecord record = step->record;
      record.stages = step->stages;
      to.on_step(record, step->computed, step->now);
    } else {
      const auto& finished = std::get<Finished>(events_[i]);
      RequestRecord record = finished.record;
      record.interruptions = finished.interruptions;
      to.on_finished(record, finished.because ? finished.because->c_str() : nullptr);
    }
  }
}

// Each turn with its events, a number before each that says which kind it is; behind the last of a turn comes
// kEnd, behind the last turn one of order kEnd.
void Told::write(bool steps, StateWriter& out) const {
  for (std::size_t turn = 0; turn < turns_.size(); ++turn) {
    bool any = false;
    for (std::size_t i = turns_[turn].first; i < end_of(turn); ++i) {
      if (!steps && !std::holds_alternative<Finished>(events_[i])) continue;
      if (!any) out(turns_[turn].order, turns_[turn].time, turns_[turn].round);
      any = true;
      out(static_cast<std::uint8_t>(events_[i].index()));
      std::visit([&out](const auto& event) { out(event); }, events_[i]);
    }
    if (any) out(kEndOfTurn);
  }
  out(kEnd);
}

void Told::read(bool steps, StateReader& in) {
  while (true) {
    Turn turn;
    in(turn.order);
    if (turn.order == kEnd) return;
    in(turn.time, turn.round);
    turn.first = events_.size();
    std::uint8_t kind = 0;
    for (in(kind); kind != kEndOfTurn; in(kind)) {
      if (kind == 0) {
        in(std::get<Step>(events_.emplace_back(Step{})));
      } else {
        in(std::get<Finished>(events_.emplace_back(Finished{})));
      }
      if (!steps && kind == 0) events_.pop_back();
    }
    if (events_.size() > turn.first) turns_.push_back(turn);
  }
}

}  // namespace tpsim::scheduler
