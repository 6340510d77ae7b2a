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
constexpr double kResolution = 1.01;  // of the rate found, against the lowest that is known not to be
constexpr double kAlone = 0.1;        // mean requests in flight, by Little's law

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

GoodputRate search_rates(double share, const ProbeRate& probe) {
  GoodputRate found;
  proto::GoodputSearch& search = found.search;
  search.set_goodput_share(share);
  search.set_outcome("stopped");
  const auto good_at = [&](double at) -> std::optional<bool> {
    const std::optional<proto::GoodputProbe> probed = probe(at);
    if (!probed) return std::nullopt;
    *search.add_probes() = *probed;
    return probed->goodput_share() >= share;
  };
  const auto last = [&search]() -> const proto::GoodputProbe& { return *search.probes().rbegin(); };

  std::optional<bool> good = good_at(kAllAtOnce);
  if (!good) return found;
  if (*good) {
    search.set_outcome("unlimited");
    return found;
  }
  double highest_good = 0;
  double lowest_bad = kAllAtOnce;
  // Where nothing is completed all at once, no rate will do better.
  double next = std::max(last().request_throughput(), 1e-9);
  while (highest_good == 0 || lowest_bad / highest_good > kResolution) {
    good = good_at(next);
    if (!good) return found;
    if (*good) {
      highest_good = next;
    } else {
      lowest_bad = next;
      if (highest_good == 0 && next * last().mean_e2e_latency_ms() / 1e3 < kAlone) {
        search.set_outcome("unreachable");
        return found;
      }
    }
    if (highest_good == 0) {
      next = lowest_bad / 2;
    } else if (std::isinf(lowest_bad)) {
      next = highest_good * 2;
    } else {
      next = std::sqrt(highest_good * lowest_bad);
    }
  }
  found.rate = highest_good;
  search.set_outcome("found");
  return found;
}

GoodputRate search_max_goodput_rate(const ServerArgs& args, const Deployment& deployment,
                                    const scheduler::StreamedWorkload& workload,
                                    const std::function<void(double rate)>& on_rate,
                                    scheduler::RunObserver& observer) {
  const Offer offer(args, deployment, workload.outline());
  const ProbeRate probe = [&](double rate) -> std::optional<proto::GoodputProbe> {
    proto::GoodputProbe probed;
    const scheduler::LoadConfig load = offer.at(rate, probed);
    const PricedReplicas replicas(deployment);
    on_rate(rate);
    const proto::RunReport run = scheduler::run_workload(replicas.fleet(), load, workload, observer);
    if (run.stopped_early()) return std::nullopt;
    probed.set_goodput_share(run.goodput_share());
    probed.set_request_goodput(run.request_goodput());
    probed.set_request_throughput(run.request_throughput());
    probed.set_mean_e2e_latency_ms(run.mean_e2e_latency_ms());
    probed.set_overloaded(run.has_overload());
    return probed;
  };
  GoodputRate found = search_rates(args.goodput_share.value_or(0.99), probe);
  found.search.set_varied(std::string(offer.varied()));
  found.search.set_message(sentence(found.search, to_string(args.goodput), found.rate));
  return found;
}

}  // namespace tpsim::launch
