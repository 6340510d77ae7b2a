#include "launch/fleet/fleet_models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/random.h"

namespace tpsim::launch {
namespace {

// A model for each request, or for each conversation.
class DrawnModels : public scheduler::StreamedWorkload {
 public:
  DrawnModels(const Fleet& fleet, std::uint64_t seed, const scheduler::StreamedWorkload& bare)
      : StreamedWorkload(outline_of(fleet, bare), [&fleet, seed, &bare]() -> scheduler::RequestReader {
          return [&fleet, seed, read = bare.read(), number = std::uint64_t{0}]() mutable {
            const std::shared_ptr<const scheduler::WorkloadRequest> next = read();
            if (next == nullptr) return next;
            auto request = std::make_shared<scheduler::WorkloadRequest>(*next);
            constexpr std::uint64_t kSessions = std::uint64_t{1} << 32;
            request->model = drawn(fleet, seed, next->session > 0 ? kSessions + next->session : number);
            ++number;
            return std::shared_ptr<const scheduler::WorkloadRequest>(std::move(request));
          };
        }) {}

 private:
  static scheduler::WorkloadOutline outline_of(const Fleet& fleet, const scheduler::StreamedWorkload& bare) {
    scheduler::WorkloadOutline outline = bare.outline();
    for (const FleetModel& model : fleet.models) outline.models.push_back(model.name);
    outline.unnamed_models = false;
    return outline;
  }
  static std::uint16_t drawn(const Fleet& fleet, std::uint64_t seed, std::uint64_t number) {
    double left = unit_interval(mix64(mix64(seed) + kGoldenGamma * (number + 1)));
    const double all = std::accumulate(fleet.models.begin(), fleet.models.end(), 0.0,
                                       [](double sum, const FleetModel& model) { return sum + model.share; });
    std::uint16_t model = 0;
    while (model + 1U < fleet.models.size() && (left -= fleet.models[model].share / all) >= 0) ++model;
    return static_cast<std::uint16_t>(model + 1);
  }
};

std::vector<std::string> names_of(const std::vector<FleetModel>& models) {
  std::vector<std::string> names;
  for (const FleetModel& model : models) names.push_back(model.name);
  return names;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> replicas_of_models(const Fleet& fleet,
                                                           const scheduler::WorkloadOutline& workload) {
  if (fleet.models.empty()) return {};
  const bool several = fleet.models.size() > 1;
  const std::vector<std::string> names = names_of(fleet.models);
  if (several && (workload.models.empty() || workload.unnamed_models))
    throw_user_error(
        "{}: {} names {} model, and {} are served: give each request of a trace a model, or share: to the "
        "servers "
        "of each model in the file",
        fleet.path, workload.name, workload.models.empty() ? "no" : "not for each request a",
        fmt::join(names, ", "));
  std::vector<std::vector<std::uint32_t>> replicas;
  for (const std::string& name : workload.models) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      throw_user_error("{}: {} names the model {}, which the router would answer with 503; served are {}",
                       fleet.path, workload.name, name, fmt::join(names, ", "));
    replicas.push_back(fleet.replicas_of(static_cast<std::size_t>(found - names.begin())));
  }
  return several ? replicas : std::vector<std::vector<std::uint32_t>>{};
}

std::unique_ptr<scheduler::StreamedWorkload> with_models_drawn(const Fleet& fleet, std::uint64_t seed,
                                                               const scheduler::StreamedWorkload& workload) {
  if (std::ranges::none_of(fleet.models, [](const FleetModel& model) { return model.share > 0; }))
    return nullptr;
  if (!workload.outline().models.empty())
    throw_user_error("{}: share: {} says itself which model each request is for; leave share out", fleet.path,
                     workload.outline().name);
  for (const FleetModel& model : fleet.models)
    if (model.share <= 0)
      throw_user_error("{}: share: no servers of {} have one; give it to those of each model", fleet.path,
                       model.name);
  return std::make_unique<DrawnModels>(fleet, seed, workload);
}

}  // namespace tpsim::launch
