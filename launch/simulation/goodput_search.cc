#include "launch/simulation/goodput_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "launch/flags/load_flags.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/text.h"
#include "rank/parallel/local_ranks.h"
#include "scheduler/engine.h"
#include "scheduler/load.h"

namespace tpsim::launch {
namespace {

constexpr double kAllAtOnce = std::numeric_limits<double>::infinity();
constexpr double kAlone = 0.1;  // mean requests in flight, by Little's law

// How a rate is offered.
class Offer {
 public:
  Offer(const ServerArgs& args, const Deployment& deployment, const scheduler::WorkloadOutline& workload)
      : load_(load_config(args, deployment, workload)) {
    const auto rate_of = [&](const scheduler::LoadConfig& load) {
      return scheduler::offered_rate(load, workload);
    };
    load_.time_scale = 1;
    by_time_ = !load_.request_rate && rate_of(load_) > 0;
    if (!by_time_) load_.request_rate = 1;
    unit_ = rate_of(load_);
  }

  std::string_view varied() const { return by_time_ ? "time_scale" : "request_rate"; }
  // Of `rate` requests per second; the setting is noted in `probe`.
  scheduler::LoadConfig at(double rate, proto::GoodputProbe& probe) const {
    scheduler::LoadConfig load = load_;
    probe.set_offered_rate(rate);
    if (std::isinf(rate)) {
      load.request_rate = kAllAtOnce;
    } else if (by_time_) {
      load.time_scale = unit_ / rate;
      probe.set_time_scale(load.time_scale);
    } else {
      load.request_rate = rate / unit_;
      probe.set_request_rate(*load.request_rate);
    }
    return load;
  }

 private:
  scheduler::LoadConfig load_;
  bool by_time_ = false;
  double unit_ = 0;  // requests per second at time_scale 1 or request_rate 1
};

// Ends a probe as soon as it is certain whether enough requests are within the levels, for a search that asks
// no more.
class UntilCertain : public scheduler::RunObserver {
 public:
  UntilCertain(const scheduler::ServiceLevels& levels, double share, scheduler::RunObserver& observer)
      : levels_(levels), share_(share), observer_(observer) {}

  void on_request(const scheduler::RequestRecord& record) override {
    observer_.on_request(record);
    if (record.state == scheduler::RequestState::kUnfinished) return;  // told once the probe has ended
    ++(levels_.met_by(record) ? good_ : bad_);
    seconds_ += record.e2e_latency();
  }
  void on_step(const scheduler::StepRecord& record) override { observer_.on_step(record); }
  bool on_progress(const scheduler::Progress& progress) override {
    all_ = static_cast<double>(progress.total);
    return observer_.on_progress(progress) && !certain();
  }

  bool certain() const { return all_ > 0 && (good_ >= share_ * all_ || bad_ > all_ - share_ * all_); }
  // Of all requests, those within the levels: at least, or where there are too few, at most.
  double goodput_share() const { return good_ >= share_ * all_ ? good_ / all_ : (all_ - bad_) / all_; }
  double mean_e2e_latency_ms() const { return seconds_ / std::max(good_ + bad_, 1.0) * 1e3; }

 private:
  const scheduler::ServiceLevels& levels_;
  const double share_;
  scheduler::RunObserver& observer_;
  double all_ = 0, good_ = 0, bad_ = 0;  // requests
  double seconds_ = 0;
};

std::string rates_searched(const proto::GoodputSearch& search) {
  double lowest = kAllAtOnce;
  double highest = 0;
  int count = 0;
  for (const proto::GoodputProbe& probe : search.probes()) {
    if (std::isinf(probe.offered_rate())) continue;
    lowest = std::min(lowest, probe.offered_rate());
    highest = std::max(highest, probe.offered_rate());
    ++count;
  }
  if (count == 0) return "";
  return fmt::format("{} rates from {:.4g} to {:.4g} were tried, and all at once", count, lowest, highest);
}

std::string sentence(const proto::GoodputSearch& search, const std::string& levels,
                     const std::optional<double>& rate) {
  const std::string share = format_real(std::round(search.goodput_share() * 1e6) / 1e4);
  if (search.outcome() == "unlimited")
    return fmt::format("no limit: {} % of requests are within {} even all at once", share, levels);
  if (search.outcome() == "unreachable")
    return fmt::format(
        "none: even at {:.3g} requests/s, hardly ever two at a time, only {:.2f} % of requests are within "
        "{}, not {} %",
        search.probes().rbegin()->offered_rate(), search.probes().rbegin()->goodput_share() * 100, levels,
        share);
  if (search.outcome() == "stopped") return "stopped early: " + rates_searched(search);
  std::string text = fmt::format("{:.4g} requests/s keep {} % of requests within {} ({})", *rate, share,
                                 levels, rates_searched(search));
  for (const proto::GoodputProbe& probe : search.probes()) {
    if (probe.offered_rate() == *rate && probe.overloaded())
      text += "; even so the queue grows without end: a longer load would allow less";
  }
  return text;
}

}  // namespace

GoodputRate search_rates(const RateSearch& how, const ProbeRate& probe) {
  GoodputRate found;
  proto::GoodputSearch& search = found.search;
  search.set_goodput_share(how.share);
  search.set_outcome("stopped");
  const auto good_at = [&](double at) -> std::optional<bool> {
    const std::optional<proto::GoodputProbe> probed = probe(at);
    if (!probed) return std::nullopt;
    *search.add_probes() = *probed;
    return probed->goodput_share() >= how.share;
  };
  const auto last = [&search]() -> const proto::GoodputProbe& { return *search.probes().rbegin(); };

  double highest_good = 0;
  double lowest_bad = kAllAtOnce;
  bool all_at_once = !how.near;  // comes next, or came
  double next = how.near.value_or(kAllAtOnce);
  while (highest_good == 0 || lowest_bad / highest_good > how.resolution) {
    const std::optional<bool> good = good_at(next);
    if (!good) return found;
    if (std::isinf(next)) {
      if (*good) {
        search.set_outcome("unlimited");
        return found;
      }
      // Where nothing is completed all at once, no rate will do better.
      next = highest_good > 0 ? highest_good * how.step : std::max(last().request_throughput(), 1e-9);
      continue;
    }
    if (*good) {
      highest_good = next;
    } else {
      lowest_bad = next;
      if (highest_good == 0 && how.at_least) return found;
      if (highest_good == 0 && next * last().mean_e2e_latency_ms() / 1e3 < kAlone) {
        search.set_outcome("unreachable");
        return found;
      }
    }
    if (highest_good == 0) {
      next = lowest_bad / how.step;
    } else if (!std::isinf(lowest_bad)) {
      next = std::sqrt(highest_good * lowest_bad);
    } else if (all_at_once || highest_good == how.near) {
      next = highest_good * how.step;
    } else {
      all_at_once = true;
      next = kAllAtOnce;
    }
  }
  found.rate = highest_good;
  search.set_outcome("found");
  return found;
}

GoodputRate search_max_goodput_rate(const ServerArgs& args, const Deployment& deployment,
                                    const scheduler::StreamedWorkload& workload, RateSearch how,
                                    const std::function<void(double rate)>& on_rate,
                                    scheduler::RunObserver& observer) {
  const Offer offer(args, deployment, workload.outline());
  how.share = args.goodput_share.value_or(how.share);
  const ProbeRate probe = [&](double rate) -> std::optional<proto::GoodputProbe> {
    proto::GoodputProbe probed;
    const scheduler::LoadConfig load = offer.at(rate, probed);
    const PricedReplicas replicas(deployment);
    on_rate(rate);
    UntilCertain until(args.goodput, how.share, observer);
    const bool brief = how.brief && !std::isinf(rate);
    scheduler::RunObserver& watching = brief ? until : observer;
    const proto::RunReport run = scheduler::run_workload(replicas.fleet(), load, workload, watching);
    if (run.stopped_early()) {
      if (!brief || !until.certain()) return std::nullopt;
      probed.set_goodput_share(until.goodput_share());
      probed.set_mean_e2e_latency_ms(until.mean_e2e_latency_ms());
      return probed;
    }
    probed.set_goodput_share(run.goodput_share());
    probed.set_request_goodput(run.request_goodput());
    probed.set_request_throughput(run.request_throughput());
    probed.set_mean_e2e_latency_ms(run.mean_e2e_latency_ms());
    probed.set_overloaded(run.has_overload());
    return probed;
  };
  GoodputRate found = search_rates(how, probe);
  found.search.set_varied(std::string(offer.varied()));
  found.search.set_message(sentence(found.search, to_string(args.goodput), found.rate));
  return found;
}

}  // namespace tpsim::launch
