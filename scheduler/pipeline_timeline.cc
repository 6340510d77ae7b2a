#include "scheduler/pipeline_timeline.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace tpsim::scheduler {

PipelineTimeline::Pass PipelineTimeline::launch(double issued, double host, double not_before,
                                                std::span<const StageOutcome> stages) {
  if (stages.size() != stages_.size())
    throw std::logic_error("the executor prices another number of pipeline stages than are scheduled");
  Pass pass;
  double there = not_before;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageOutcome& outcome = stages[i];
    Stage& stage = stages_[i];
    const double start = std::max({stage.free, issued + static_cast<double>(i) * host, there});
    if (i == 0) pass.start = start;
    const bool last = i + 1 == stages.size();
    const double done = start + outcome.seconds;
    last_pass_[i] = {.start = start, .end = done, .sent = done + outcome.send};
    stage.free = last ? done : done + outcome.send;
    stage.busy += outcome.seconds;
    stage.sending += outcome.send;
    there = done + outcome.send + (last ? 0 : stages[i + 1].receive);
  }
  pass.end = there;
  under_way_ += std::max(0.0, pass.end - std::max(pass.start, last_end_));
  last_end_ = std::max(last_end_, pass.end);
  return pass;
}

double PipelineTimeline::busy_seconds(std::span<const StageOutcome> stages) {
  double sum = 0;
  for (const StageOutcome& stage : stages) sum += stage.seconds;
  return sum / static_cast<double>(stages.size());
}

void PipelineTimeline::write_report(proto::RunReport& report) const {
  double busy = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    proto::PipelineStage& out = *report.add_pipeline_stages();
    out.set_pp_rank(static_cast<std::uint32_t>(i));
    out.set_busy_seconds(stages_[i].busy);
    out.set_send_seconds(stages_[i].sending);
    out.set_idle_fraction(under_way_ > 0 ? std::max(0.0, 1 - stages_[i].busy / under_way_) : 0);
    busy += stages_[i].busy;
  }
  const double all = under_way_ * static_cast<double>(stages_.size());
  report.set_pipeline_bubble_fraction(all > 0 ? std::max(0.0, 1 - busy / all) : 0);
}

void PipelineTimeline::reset() { *this = PipelineTimeline(stages_.size()); }

}  // namespace tpsim::scheduler
