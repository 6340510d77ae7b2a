#include "rank/parallel/local_ranks.h"

#include <algorithm>
#include <stdexcept>

namespace tpsim::rank {

namespace {

// The one place where a slowdown meets a cost: every process must round alike.
StepCost slowed(const StepCost& cost, double slowdown) {
  StepCost result = cost;
  result.attention *= slowdown;
  result.gemm *= slowdown;
  result.other *= slowdown;
  return result;
}

double arrival_of(const StepCost& cost) { return cost.attention + cost.gemm + cost.other + cost.launch; }

StepTimes times_of(const StepCost& cost) {
  return StepTimes{arrival_of(cost), cost.collective, cost.host_seconds};
}

RankStateConfig state_of(const DeploymentConfig& config, std::uint32_t first_rank) {
  RankStateConfig state = config.state;
  state.rank = first_rank;
  return state;
}

}  // namespace

void StepTimes::take_slowest(const StepTimes& other) {
  arrival = std::max(arrival, other.arrival);
  collective = std::max(collective, other.collective);
  host = std::max(host, other.host);
}

LocalRanks::LocalRanks(const DeploymentConfig& config, std::uint32_t first_rank, std::uint32_t num_ranks,
                       std::vector<std::unique_ptr<RankModel>> models)
    : ranks_(config.ranks),
      slowdown_(config.slowdown),
      first_rank_(first_rank),
      num_ranks_(num_ranks),
      state_(state_of(config, first_rank)),
      models_(std::move(models)),
      costs_(models_.size()) {
  if (config.slowdown.size() != config.tp_size || config.ranks.size() != config.tp_size || num_ranks == 0 ||
      first_rank + num_ranks > config.tp_size || (models_.size() != 1 && models_.size() != num_ranks)) {
    throw std::invalid_argument("LocalRanks: numbers of ranks, slowdowns, reports or models do not fit");
  }
  slowest_slowdown_ = *std::max_element(slowdown_.begin(), slowdown_.end());
  for (std::uint32_t i = 0; i < num_ranks; ++i) {
    const std::size_t model = identical_shards() ? 0 : i;
    const double slowdown = slowdown_[first_rank + i];
    const auto found = std::find_if(classes_.begin(), classes_.end(), [&](const Class& c) {
      return c.model == model && c.slowdown == slowdown;
    });
    class_of_.push_back(static_cast<std::size_t>(found - classes_.begin()));
    if (found == classes_.end()) classes_.push_back(Class{model, slowdown, {}, {}, {}});
  }
}

StepTimes LocalRanks::price(const proto::ForwardBatch& batch) {
  const attention::ForwardMetadata metadata = state_.apply(batch);
  mode_ = metadata.forward_mode;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    costs_[i] = metadata.forward_mode == proto::IDLE ? StepCost{} : models_[i]->forward(metadata);
  }
  StepTimes slowest;
  for (const Class& c : classes_) slowest.take_slowest(times_of(slowed(costs_[c.model], c.slowdown)));
  return slowest;
}

StepTimes LocalRanks::slowest_of_deployment() const { return times_of(slowed(costs_[0], slowest_slowdown_)); }

void LocalRanks::account(double arrival) {
  for (Class& c : classes_) {
    const StepCost cost = slowed(costs_[c.model], c.slowdown);
    PassTotal& total = c.total(mode_);
    total.cost.attention += cost.attention;
    total.cost.gemm += cost.gemm;
    total.cost.collective += cost.collective;
    total.cost.other += cost.other;
    total.cost.launch += cost.launch;
    total.cost.flops += cost.flops;
    total.cost.memory_bytes += cost.memory_bytes;
    total.cost.communicated_bytes += cost.communicated_bytes;
    total.wait += arrival - arrival_of(cost);
  }
}

LocalRanks::PassTotal& LocalRanks::Class::total(proto::ForwardMode mode) {
  return mode == proto::DECODE ? decode : mode == proto::MIXED ? mixed : prefill;
}

void LocalRanks::PassTotal::write(proto::PassSeconds& seconds) const {
  seconds.set_attention(cost.attention);
  seconds.set_gemm(cost.gemm);
  seconds.set_collective(cost.collective);
  seconds.set_other(cost.other);
  seconds.set_launch(cost.launch);
  seconds.set_wait(wait);
}

std::vector<proto::RankReport> LocalRanks::reports() const {
  std::vector<proto::RankReport> reports;
  for (std::uint32_t i = 0; i < num_ranks_; ++i) {
    const Class& c = classes_[class_of_[i]];
    proto::RankReport report = ranks_[first_rank_ + i];
    report.set_rank(first_rank_ + i);
    report.set_slowdown(slowdown_[first_rank_ + i]);
    report.set_peak_kv_bytes(state_.peak_held_bytes());
    c.prefill.write(*report.mutable_prefill());
    c.decode.write(*report.mutable_decode());
    c.mixed.write(*report.mutable_mixed());
    const auto sum = [&c](double StepCost::*part) {
      return c.prefill.cost.*part + c.decode.cost.*part + c.mixed.cost.*part;
    };
    report.set_flops(sum(&StepCost::flops));
    report.set_memory_bytes(sum(&StepCost::memory_bytes));
    report.set_communicated_bytes(sum(&StepCost::communicated_bytes));
    report.set_attention_seconds(sum(&StepCost::attention));
    report.set_gemm_seconds(sum(&StepCost::gemm));
    report.set_collective_seconds(sum(&StepCost::collective));
    report.set_other_seconds(sum(&StepCost::other));
    report.set_launch_seconds(sum(&StepCost::launch));
    report.set_wait_seconds(c.prefill.wait + c.decode.wait + c.mixed.wait);
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace tpsim::rank
