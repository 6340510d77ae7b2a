#include "scheduler/elastic/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "proto/base/random.h"

namespace tpsim::scheduler {

Elastic::Elastic(const ElasticConfig& config, const std::vector<ReplicaStart>& starts) : config_(config) {
  for (const ReplicaStart& start : starts)
    workers_.push_back({.start = start,
                        .before = {},
                        .breaker = CircuitBreaker(config.breaker),
                        .health = HealthChecks(config.health)});
  for (const ReplicaFailure& failure : config.failures) {
    events_.insert({failure.from, {.kind = Kind::kDies, .replica = failure.replica}});
    if (std::isfinite(failure.until))
      events_.insert({failure.until, {.kind = Kind::kStarts, .replica = failure.replica}});
  }
  for (const ReplicaSlowdown& slow : config.slowdowns) {
    events_.insert({slow.from, {.kind = Kind::kSlows, .replica = slow.replica, .factor = slow.factor}});
    if (std::isfinite(slow.until))
      events_.insert({slow.until, {.kind = Kind::kSlows, .replica = slow.replica}});
  }
  for (const AutoscaleConfig& each : config.autoscale) {
    const auto number = static_cast<std::uint32_t>(groups_.size());
    for (std::uint32_t i = 0; i < each.most; ++i) workers_.at(each.first + i).group = number;
    groups_.push_back({each, Autoscaler(each), {}});
  }
  for (std::uint32_t i = 0; i < workers_.size(); ++i) {
    const std::uint32_t group = workers_[i].group;
    if (group != kNoGroup && i >= groups_[group].config.first + groups_[group].config.initial) continue;
    enter(i, State::kUp, 0);
    plan_death(i, 0);
  }
  for (std::uint32_t i = 0; i < groups_.size(); ++i)
    events_.insert({groups_[i].config.interval, {.kind = Kind::kLook, .replica = i}});
}

double Elastic::draw() { return unit_interval(mix64(mix64(config_.seed) + kGoldenGamma * ++draws_)); }

void Elastic::plan_death(std::uint32_t replica, double now) {
  if (config_.mtbf <= 0) return;
  events_.insert({now - config_.mtbf * std::log1p(-draw()),
                  {.kind = Kind::kDies, .replica = replica, .life = workers_[replica].life}});
}

bool Elastic::alive(std::uint32_t replica) const {
  const State state = workers_[replica].state;
  return state == State::kUp || state == State::kDraining;
}

std::uint32_t Elastic::count(State state, std::span<const Worker> workers) {
  return static_cast<std::uint32_t>(std::ranges::count(workers, state, &Worker::state));
}

std::span<const Elastic::Worker> Elastic::workers_of(const Group& group) const {
  return std::span(workers_).subspan(group.config.first, group.config.most);
}

void Elastic::enter(std::uint32_t replica, State state, double now) {
  Worker& worker = workers_[replica];
  worker.health.run_until(now, alive(replica));
  worker.before = uptime(replica, now);
  if (state == State::kDead) ++worker.before.deaths;
  worker.state = state;
  worker.since = now;
  most_up_ = std::max(most_up_, count(State::kUp));
}

Elastic::Uptime Elastic::uptime(std::uint32_t replica, double end) const {
  const Worker& worker = workers_[replica];
  Uptime out = worker.before;
  const double seconds = std::max(0.0, end - worker.since);
  if (alive(replica)) out.up += seconds;
  if (worker.state != State::kOff) out.held += seconds;
  return out;
}

double Elastic::next_time() const {
  return events_.empty() ? std::numeric_limits<double>::infinity() : events_.begin()->first;
}

void Elastic::start(std::uint32_t replica, double now, ElasticServers& servers) {
  enter(replica, State::kStarting, now);
  servers.on_start(replica);
  Worker& worker = workers_[replica];
  events_.insert(
      {now + worker.start.seconds, {.kind = Kind::kReady, .replica = replica, .life = ++worker.life}});
}

void Elastic::advance(ElasticServers& servers) {
  const auto [now, event] = *events_.begin();
  events_.erase(events_.begin());
  if (event.kind == Kind::kLook) {
    Group& group = groups_[event.replica];
    look(group, now, servers);
    events_.insert({now + group.config.interval, event});
    return;
  }
  Worker& worker = workers_[event.replica];
  if (event.life != 0 && event.life != worker.life) return;
  switch (event.kind) {
    case Kind::kDies:
      if (worker.state == State::kOff || worker.state == State::kDead) return;
      enter(event.replica, State::kDead, now);
      ++worker.life;
      servers.on_death(event.replica, now);
      if (event.life != 0) start(event.replica, now, servers);
      return;
    case Kind::kStarts:
      if (worker.state == State::kDead) start(event.replica, now, servers);
      return;
    case Kind::kReady:
      enter(event.replica, State::kUp, now);
      plan_death(event.replica, now);
      return;
    case Kind::kSlows:
      servers.set_slowdown(event.replica, event.factor);
      return;
    case Kind::kLook:
      return;
  }
}

void Elastic::on_answer(std::uint32_t replica, double time, double needed) {
  const std::uint32_t group = workers_[replica].group;
  if (group != kNoGroup && groups_[group].config.metric == AutoscaleMetric::kSlo)
    groups_[group].answers.add(time, needed);
}

double Elastic::sum_of(Group& group, double now, std::uint32_t ready, const ElasticServers& servers) const {
  const AutoscaleConfig& config = group.config;
  const std::uint32_t end = config.first + config.most;
  if (config.metric == AutoscaleMetric::kSlo) {
    const double needed = group.answers.needed_by(config.share, config.window, now);
    if (needed >= 0) return needed * ready;
    // Nobody waits for an answer, or it is not known yet how long.
    for (std::uint32_t i = config.first; i < end; ++i)
      if (alive(i) && servers.busy(i)) return ready;
    return 0;
  }
  double sum = 0;
  for (std::uint32_t i = config.first; i < end; ++i)
    if (workers_[i].state == State::kUp) sum += servers.metric(i, config.metric);
  return sum;
}

void Elastic::look(Group& group, double now, ElasticServers& servers) {
  // As pods that crashed and start again, dead ones count as starting.
  const std::uint32_t ready = count(State::kUp, workers_of(group));
  const std::uint32_t starting =
      count(State::kStarting, workers_of(group)) + count(State::kDead, workers_of(group));
  std::uint32_t current = ready + starting;
  const std::uint32_t wanted = group.scaler.desired(now, ready, starting, sum_of(group, now, ready, servers));
  const std::uint32_t first = group.config.first;
  const std::uint32_t end = first + group.config.most;
  for (std::uint32_t i = first; i < end && current < wanted; ++i) {
    if (workers_[i].state != State::kOff) continue;
    start(i, now, servers);
    ++current;
  }
  for (std::uint32_t i = first; i < end && current < wanted; ++i) {
    if (workers_[i].state != State::kDraining) continue;
    enter(i, State::kUp, now);
    ++current;
  }
  // Those that do not serve yet go first, then the last.
  for (const bool serving : {false, true}) {
    for (std::uint32_t i = end; i-- > first && current > wanted;) {
      const State state = workers_[i].state;
      const bool goes = serving ? state == State::kUp : state == State::kStarting || state == State::kDead;
      if (!goes) continue;
      scale_down(i, now, servers);
      --current;
    }
  }
}

void Elastic::scale_down(std::uint32_t replica, double now, const ElasticServers& servers) {
  if (workers_[replica].state == State::kUp && servers.busy(replica)) {
    enter(replica, State::kDraining, now);
    return;
  }
  ++workers_[replica].life;
  enter(replica, State::kOff, now);
}

void Elastic::on_idle(std::uint32_t replica, double time) {
  if (workers_[replica].state != State::kDraining) return;
  ++workers_[replica].life;
  enter(replica, State::kOff, std::max(time, workers_[replica].since));
}

std::span<const std::uint32_t> Elastic::look_for_available(double now) {
  available_.clear();
  for (std::uint32_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.health.run_until(now, alive(i));
    // Of servers that come and go the router is told; one that crashed it must find out about.
    if (worker.state == State::kOff || worker.state == State::kDraining) continue;
    if (worker.group != kNoGroup && worker.state == State::kStarting && worker.before.deaths == 0) continue;
    if (worker.health.healthy() && worker.breaker.lets_through(now)) available_.push_back(i);
  }
  return available_;
}

std::optional<double> Elastic::backoff(std::uint32_t failed) {
  if (failed >= config_.retry.max_retries) return std::nullopt;
  ++retries_;
  return retry_backoff(config_.retry, failed, draw());
}

void Elastic::write(double end, proto::RunReport& report) const {
  proto::Elasticity& out = *report.mutable_elasticity();
  for (std::uint32_t i = 0; i < workers_.size(); ++i) {
    const Uptime uptime_of = uptime(i, end);
    const double gpu_seconds = uptime_of.held * workers_[i].start.gpus;
    proto::ReplicaReport& replica = *report.mutable_replicas(static_cast<int>(i));
    replica.set_up_seconds(uptime_of.up);
    replica.set_gpu_seconds(gpu_seconds);
    replica.set_deaths(uptime_of.deaths);
    out.set_gpu_seconds(out.gpu_seconds() + gpu_seconds);
  }
  if (report.completed() > 0)
    out.set_gpu_seconds_per_request(out.gpu_seconds() / static_cast<double>(report.completed()));
  out.set_most_replicas(most_up_);
  out.set_retries(retries_);
  out.set_lost_in_flight(lost_in_flight_);
  out.set_lost_unreached(lost_unreached_);
  if (refused_ > 0) out.set_refused(refused_);
  const std::uint64_t lost = lost_in_flight_ + lost_unreached_ + refused_;
  if (lost == 0) return;
  const std::string of_limits =
      refused_ == 0 ? "" : fmt::format(", {} that the router's limits did not let through", refused_);
  out.set_message(
      fmt::format("{} of {} requests ended with an error: {} whose answer had begun when their replica died, "
                  "{} that reached no replica in {} attempts{}",
                  lost, lost + report.completed() + report.failed(), lost_in_flight_, lost_unreached_,
                  config_.retry.max_retries, of_limits));
}

}  // namespace tpsim::scheduler
