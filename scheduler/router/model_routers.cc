#include "scheduler/router/model_routers.h"

#include <algorithm>

namespace tpsim::scheduler {
namespace {

std::vector<std::uint64_t> of_these(const std::vector<std::uint32_t>& replicas,
                                    std::span<const std::uint64_t> in_flight) {
  std::vector<std::uint64_t> some;
  some.reserve(replicas.size());
  for (const std::uint32_t replica : replicas) some.push_back(in_flight[replica]);
  return some;
}

}  // namespace

class ModelRouters::Some : public RoutedReplicas {
 public:
  Some(const std::vector<std::uint32_t>& replicas, const RoutedReplicas& all)
      : replicas_(replicas), all_(all), in_flight_(of_these(replicas, all.in_flight())) {
    if (all.available().empty()) return;
    for (std::uint32_t i = 0; i < replicas.size(); ++i)
      if (std::ranges::binary_search(all.available(), replicas[i])) available_.push_back(i);
  }
  std::span<const std::uint64_t> in_flight() const override { return in_flight_; }
  std::uint64_t sessions(std::size_t replica) const override { return all_.sessions(replicas_[replica]); }
  Load load(std::size_t replica) const override { return all_.load(replicas_[replica]); }
  std::span<const std::uint32_t> available() const override { return available_; }

 private:
  const std::vector<std::uint32_t>& replicas_;
  const RoutedReplicas& all_;
  const std::vector<std::uint64_t> in_flight_;
  std::vector<std::uint32_t> available_;
};

ModelRouters::ModelRouters(const RouterConfig& config) {
  RouterConfig of_one = config;
  of_one.models.clear();
  for (const std::vector<std::uint32_t>& replicas : config.models) {
    const bool shared = config.policy == RouterPolicy::kRoundRobin && !models_.empty();
    models_.push_back({replicas, shared ? models_.front().router : make_router(of_one, replicas.size())});
    ++of_one.seed;  // each draws by itself
  }
}

std::size_t ModelRouters::choose(const WorkloadRequest& request, double now, const RoutedReplicas& replicas) {
  const Model& model = model_of(request);
  return model.replicas[model.router->choose(request, now, Some(model.replicas, replicas))];
}

bool ModelRouters::looks(const WorkloadRequest& request, double now,
                         std::span<const std::uint64_t> in_flight) {
  const Model& model = model_of(request);
  return model.router->looks(request, now, of_these(model.replicas, in_flight));
}

bool ModelRouters::never_looks() const {
  return std::ranges::all_of(models_, [](const Model& model) { return model.router->never_looks(); });
}

bool ModelRouters::serves(const WorkloadRequest& request, std::span<const std::uint32_t> available) const {
  return std::ranges::any_of(model_of(request).replicas, [&](std::uint32_t replica) {
    return std::ranges::binary_search(available, replica);
  });
}

void ModelRouters::restart_clock() {
  for (const Model& model : models_) model.router->restart_clock();
}

}  // namespace tpsim::scheduler
