#include "scheduler/load.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace tpsim::scheduler {
namespace {

// Uniform in [0, 1), the same on every platform.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

}  // namespace

LoadGenerator::LoadGenerator(const LoadConfig& config, const Workload& workload, std::uint64_t seed)
    : places_(config.max_concurrency) {
  times_.reserve(workload.requests.size());
  if (!config.request_rate) {
    for (const WorkloadRequest& request : workload.requests) {
      times_.push_back(request.arrival_time * config.time_scale);
    }
    return;
  }
  std::mt19937_64 random(seed);
  double time = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    times_.push_back(time);
    if (std::isinf(*config.request_rate)) continue;
    const double gap = config.fixed_interval ? 1.0 : -std::log1p(-uniform(random));
    time += gap / *config.request_rate;
  }
}

double LoadGenerator::next_time() const {
  if (exhausted()) return kNever;
  if (places_ == 0) return times_[next_];
  if (in_flight_ >= places_) return kNever;
  return std::max(times_[next_], last_free_);
}

LoadGenerator::Sent LoadGenerator::pop() {
  const Sent sent{next_, next_time()};
  ++next_;
  ++in_flight_;
  return sent;
}

void LoadGenerator::on_finished(double now) {
  if (in_flight_ == places_) last_free_ = now;
  --in_flight_;
}

}  // namespace tpsim::scheduler
