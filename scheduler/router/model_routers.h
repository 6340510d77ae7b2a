// SGLang's router in front of several models (`--enable-igw`): one policy for all of them, each request among
// the replicas that serve its model. As a real router of 0.3.2 in front of two servers of each of two models:
// cache_aware has a tree for each model and balances among its replicas alone; round_robin has one count for
// requests of all models, so that those of two models in turn reach one server of each. A replica serves one
// model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "scheduler/router/router.h"

namespace tpsim::scheduler {

class ModelRouters : public Router {
 public:
  // REQUIRES: config.models is not empty, nor is one of its members; requests name one of these.
  explicit ModelRouters(const RouterConfig& config);

  std::size_t choose(const WorkloadRequest& request, double now, const RoutedReplicas& replicas) override;
  bool looks(const WorkloadRequest& request, double now, std::span<const std::uint64_t> in_flight) override;
  bool never_looks() const override;
  bool serves(const WorkloadRequest& request, std::span<const std::uint32_t> available) const override;
  void restart_clock() override;

 private:
  struct Model {
    std::vector<std::uint32_t> replicas;  // ascending
    std::shared_ptr<Router> router;       // round_robin's is that of all models
  };
  // Replicas of one model, as its policy sees them.
  class Some;

  const Model& model_of(const WorkloadRequest& request) const { return models_.at(request.model - 1U); }

  std::vector<Model> models_;
};

}  // namespace tpsim::scheduler
