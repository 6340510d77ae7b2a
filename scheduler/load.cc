#include "scheduler/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tpsim::scheduler {
namespace {

std::uint64_t num_arrivals(const LoadConfig& config, const WorkloadOutline& workload) {
  return config.session_mode == SessionMode::kClosed ? workload.requests - workload.turns : workload.requests;
}

// Seconds from one arrival to the next. REQUIRES: a finite request rate.
double gap(const LoadConfig& config, Sampler& sampler) {
  const double mean = 1 / *config.request_rate;
  return config.fixed_interval ? mean : sampler.exponential(mean);
}

bool spaced_by_rate(const LoadConfig& config) {
  return config.request_rate && !std::isinf(*config.request_rate);
}

double last_arrival(const LoadConfig& config, const WorkloadOutline& workload) {
  if (!config.request_rate) {
    const bool closed = config.session_mode == SessionMode::kClosed;
    return (closed ? workload.last_start : workload.last_arrival) * config.time_scale;
  }
  double time = 0;
  if (!spaced_by_rate(config)) return time;
  Sampler sampler(config.seed);
  const std::uint64_t arrivals = num_arrivals(config, workload);
  for (std::uint64_t i = 1; i < arrivals; ++i) time += gap(config, sampler);
  return time;
}

}  // namespace

bool comes_by_itself(const LoadConfig& config, const WorkloadOutline& workload) {
  return config.max_concurrency == 0 && workload.turns == 0 && !config.elastic.enabled();
}

double offered_rate(const LoadConfig& config, const WorkloadOutline& workload) {
  if (config.max_concurrency != 0 || workload.requests == 0) return 0;
  if (!config.request_rate) {
    const double span = (workload.last_arrival - workload.first_arrival) * config.time_scale;
    return span > 0 ? static_cast<double>(workload.requests - 1) / span : 0;
  }
  if (std::isinf(*config.request_rate)) return 0;
  return *config.request_rate * static_cast<double>(workload.requests) /
         static_cast<double>(num_arrivals(config, workload));
}

LoadGenerator::LoadGenerator(const LoadConfig& config, const StreamedWorkload& workload)
    : config_(config),
      workload_(workload),
      outline_(workload.outline()),
      reader_(workload.read()),
      closed_(config.session_mode == SessionMode::kClosed),
      sampler_(config.seed),
      places_(config.max_concurrency) {
  if (places_ == 0 && outline_.requests > 0) {
    offered_.rate = offered_rate(config, outline_);
    offered_.last_arrival = offered_.end = last_arrival(config, outline_);
  }
  read_to_next_arrival();
}

void LoadGenerator::offer(double end, std::uint64_t output) {
  if (places_ != 0) return;
  offered_.end = std::max(offered_.end, end);
  offered_.longest_output = std::max(offered_.longest_output, output);
}

void LoadGenerator::read() {
  RequestPtr request = reader_();
  if (request == nullptr) {
    all_read_ = true;
    return;
  }
  const std::uint64_t id = read_++;
  const auto known = closed_ && outline_.turns > 0 && request->session != 0 ? sessions_.find(request->session)
                                                                            : sessions_.end();
  if (known != sessions_.end()) {
    Session& session = known->second;
    const double wait =
        config_.time_scale * request->think_time.value_or(request->arrival_time - session.recorded);
    session.recorded = request->arrival_time;
    session.end += wait;
    session.output += request->max_new_tokens;
    offer(session.end, session.output);
    session.turns.push_back({id, request, wait, request->think_time.has_value()});
    return;
  }
  double time = next_start_;
  if (!config_.request_rate) {
    time = request->arrival_time * config_.time_scale;
  } else if (spaced_by_rate(config_)) {
    next_start_ += gap(config_, sampler_);
  }
  offer(time, request->max_new_tokens);
  if (closed_ && followed(id)) {
    Session& session = sessions_[request->session];
    session.recorded = request->arrival_time;
    session.end = time;
    session.output = request->max_new_tokens;
  }
  arrivals_.push_back({time, id, std::move(request)});
}

void LoadGenerator::read_to_next_arrival() {
  while (arrivals_.empty() && !all_read_) read();
}

void LoadGenerator::skip_what_was_read() {
  reader_ = workload_.read();
  for (std::uint64_t i = 0; i < read_; ++i) reader_();
}

const LoadGenerator::Due* LoadGenerator::first_due() const {
  const Due* const arrival = arrivals_.empty() ? nullptr : &arrivals_.front();
  const Due* const turn = due_turns_.empty() ? nullptr : &due_turns_.top();
  if (arrival == nullptr || turn == nullptr) return arrival == nullptr ? turn : arrival;
  return *turn < *arrival ? turn : arrival;
}

double LoadGenerator::next_time() const {
  if (places_ != 0 && !kept_.empty()) return kept_.front().time;
  if (places_ != 0 && taken_ >= places_ && freed_.empty()) return kNever;
  const Due* const due = first_due();
  if (due == nullptr) return kNever;
  return taken_ < places_ || freed_.empty() ? due->time : std::max(due->time, freed_.front());
}

RequestSource::Sent LoadGenerator::pop() {
  const double time = next_time();
  Due due;
  if (!kept_.empty()) {
    due = std::move(kept_.front());
    kept_.pop_front();
  } else {
    if (places_ != 0 && taken_ < places_) {
      ++taken_;
    } else if (places_ != 0) {
      freed_.pop_front();
    }
    if (!arrivals_.empty() && first_due() == &arrivals_.front()) {
      due = std::move(arrivals_.front());
      arrivals_.pop_front();
      read_to_next_arrival();
    } else {
      due = due_turns_.top();
      due_turns_.pop();
    }
  }
  ++sent_;
  bool early = false;
  if (outline_.turns > 0 && due.request->session != 0) {
    const auto known = sessions_.find(due.request->session);
    early = !closed_ && known != sessions_.end() && known->second.finished > time;
    if (followed(due.id)) {
      Session& session = known != sessions_.end() ? known->second : sessions_[due.request->session];
      session.last_id = due.id;
      session.sent = time;
      session.finished = kNever;
      session_of_.emplace(due.id, due.request->session);
    } else if (known != sessions_.end()) {
      sessions_.erase(known);
    }
  }
  return {due.id, time, early, std::move(due.request)};
}

void LoadGenerator::on_finished(std::uint64_t id, double now) {
  Session* session = nullptr;
  if (const auto flight = session_of_.find(id); flight != session_of_.end()) {
    // The session may have ended since, where turns do not wait for answers.
    const auto known = sessions_.find(flight->second);
    if (known != sessions_.end()) session = &known->second;
    session_of_.erase(flight);
  }
  if (session != nullptr && session->last_id == id) session->finished = now;
  if (!closed_) session = nullptr;
  if (session != nullptr) {
    while (session->turns.empty() && !all_read_) read();
    if (session->turns.empty()) session = nullptr;
  }
  if (session != nullptr && places_ != 0 && session->turns.front().wait == 0) {
    Turn& turn = session->turns.front();
    kept_.push_back({now, turn.id, std::move(turn.request)});
    session->turns.erase(session->turns.begin());
    return;
  }
  // Its client sees the end later than the scheduler, and each at a time of its own.
  if (places_ != 0) freed_.insert(std::ranges::upper_bound(freed_, now), now);
  if (session == nullptr) return;
  Turn& turn = session->turns.front();
  const double due = turn.after_answer ? now + turn.wait : std::max(session->sent + turn.wait, now);
  due_turns_.push({due, turn.id, std::move(turn.request)});
  session->turns.erase(session->turns.begin());
}

void OverloadWatch::on_request(const RequestRecord& record) {
  if (rate_ == 0 || record.state != RequestState::kCompleted) return;
  const double quarter = last_arrival_ / kQuarters;
  for (std::size_t i = 0; i < kQuarters; ++i) {
    const double start = static_cast<double>(i) * quarter;
    const double from = std::max(record.arrival_time, start);
    const double to = std::min(record.finish_time, start + quarter);
    in_flight_[i] += std::max(0.0, to - from);
  }
  if (record.arrival_time <= last_arrival_) {
    ++arrived_;
    left_waiting_ += record.first_scheduled_time > last_arrival_ ? 1 : 0;
  }
  last_finish_ = std::max(last_finish_, record.finish_time);
  const double tpot = record.tpot();
  if (tpot > 0 && (shortest_tpot_ == 0 || tpot < shortest_tpot_)) shortest_tpot_ = tpot;
}

bool OverloadWatch::in_flight_grows() const {
  constexpr double kAlike = 4;
  const double earlier = in_flight_[2] - in_flight_[1];
  const double later = in_flight_[3] - in_flight_[2];
  return earlier > 0 && later > 0 && earlier * kAlike >= later && later * kAlike >= earlier;
}

bool OverloadWatch::many_left_waiting() const {
  return static_cast<double>(left_waiting_) > 2 * std::sqrt(static_cast<double>(arrived_));
}

bool OverloadWatch::long_to_work_off(const Offered& offered) const {
  const double alone = offered.end + static_cast<double>(offered.longest_output) * shortest_tpot_;
  return last_finish_ - alone > last_arrival_;
}

void OverloadWatch::write(const Offered& offered, proto::RunReport& report) const {
  if (rate_ <= report.request_throughput() || !in_flight_grows()) return;
  if (!many_left_waiting() && !long_to_work_off(offered)) return;
  proto::Overload& overload = *report.mutable_overload();
  overload.set_offered_rate(rate_);
  overload.set_served_rate(report.request_throughput());
  overload.set_message(fmt::format("offered {:.2f} requests/s, served {:.2f}: the queue grows without end",
                                   overload.offered_rate(), overload.served_rate()));
}

}  // namespace tpsim::scheduler
