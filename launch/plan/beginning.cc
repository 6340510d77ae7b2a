#include "launch/plan/beginning.h"

#include <optional>
#include <utility>
#include <vector>

#include "launch/simulation/goodput_search.h"
#include "launch/simulation/run_report.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/workload_args.h"
#include "scheduler/engine.h"

namespace tpsim::launch {
namespace {

// Of the time that a server's passes take, what prefills take. Passes that do both are prefills with some
// decodes on top.
double prefill_share_of(const std::vector<proto::RankReport>& ranks) {
  const auto seconds = [](const proto::PassSeconds& pass) {
    return pass.attention() + pass.gemm() + pass.collective() + pass.other() + pass.launch() + pass.wait();
  };
  double prefill = 0, all = 0;
  for (const proto::RankReport& rank : ranks) {
    const double part = seconds(rank.prefill()) + seconds(rank.mixed());
    prefill += part;
    all += part + seconds(rank.decode());
  }
  return all > 0 ? prefill / all : 0;
}

// Stops where a run's clock has gone beyond the deadline, where it has more bad requests than it may, or
// where somebody asks for it.
class Hopeless : public scheduler::NoRecords {
 public:
  Hopeless(const Bar& bar, const scheduler::ServiceLevels& levels, const std::atomic<bool>& stop)
      : bar_(bar), levels_(levels), stop_(stop) {}
  void on_request(const scheduler::RequestRecord& record) override {
    if (record.state != scheduler::RequestState::kUnfinished && !levels_.met_by(record)) ++bad_;
  }
  // Whether a run goes on hangs on how often it is asked, which is every so many steps, in their order.
  bool wants_steps() const override { return true; }
  bool on_progress(const scheduler::Progress& progress) override {
    return !stop_ && bad_ <= bar_.most_bad && (bar_.deadline <= 0 || progress.time <= bar_.deadline);
  }

 private:
  const Bar& bar_;
  const scheduler::ServiceLevels& levels_;
  const std::atomic<bool>& stop_;
  double bad_ = 0;  // requests
};

}  // namespace

void serve_beginning(const ServerArgs& args, const Deployment& deployment,
                     const scheduler::StreamedWorkload& beginning, const Bar& bar,
                     const std::atomic<bool>& stop, proto::PlanTrial& trial) {
  Hopeless until(bar, args.goodput, stop);
  std::optional<GoodputRate> found;
  if (args.max_goodput_rate) {
    const RateSearch how = {.resolution = bar.resolution,
                            .step = bar.step,
                            .near = bar.rate,
                            .brief = true,
                            .at_least = bar.at_least};
    found = search_max_goodput_rate(
        args, deployment, beginning, how, [](double) {}, until);
    if (found->search.outcome() == "stopped") {
      trial.mutable_report()->set_stopped_early(true);
      return;
    }
  }
  const PricedReplicas replicas(deployment);
  proto::RunReport report = scheduler::run_workload(
      replicas.fleet(), load_config(args, deployment, beginning.outline()), beginning, until);
  if (found) add_goodput(std::move(*found), report);
  // What a ranking needs.
  report.clear_timeline();
  report.clear_ttft_histogram();
  report.clear_tpot_histogram();
  report.clear_itl_histogram();
  report.set_tp_size(args.tp_size);
  if (args.parallel.pp_size > 1) report.set_pp_size(args.parallel.pp_size);
  if (deployment.router.replicas > 1)
    trial.set_prefill_share(prefill_share_of(replicas.executors().front()->finish()));
  *trial.mutable_report() = std::move(report);
}

}  // namespace tpsim::launch
