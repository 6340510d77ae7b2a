#include "scheduler/load.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "scheduler/workload/sampler.h"

namespace tpsim::scheduler {

LoadGenerator::LoadGenerator(const LoadConfig& config, const Workload& workload)
    : workload_(&workload),
      size_(workload.requests.size()),
      closed_(config.session_mode == SessionMode::kClosed),
      places_(config.max_concurrency) {
  link_turns(config, workload);
  arrivals_.reserve(closed_ ? size_ - num_turns_ : size_);
  Sampler sampler(config.seed);
  double time = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    if (!starts_alone(i)) continue;
    if (!config.request_rate) time = workload.requests[i].arrival_time * config.time_scale;
    arrivals_.push_back({time, static_cast<std::uint32_t>(i)});
    if (config.request_rate && !std::isinf(*config.request_rate)) {
      const double mean = 1 / *config.request_rate;
      time += config.fixed_interval ? mean : sampler.exponential(mean);
    }
  }
  offered_ = offered_by(config, workload);
}

Offered LoadGenerator::offered_by(const LoadConfig& config, const Workload& workload) const {
  Offered offered;
  if (places_ != 0 || size_ == 0) return offered;
  offered.last_arrival = offered.end = arrivals_.back().time;
  if (!config.request_rate) {
    const double span =
        (workload.requests.back().arrival_time - workload.requests.front().arrival_time) * config.time_scale;
    if (span > 0) offered.rate = static_cast<double>(size_ - 1) / span;
  } else if (!std::isinf(*config.request_rate)) {
    offered.rate = *config.request_rate * static_cast<double>(size_) / static_cast<double>(arrivals_.size());
  }
  for (const Due& arrival : arrivals_) {
    double end = arrival.time;
    std::uint64_t output = workload.requests[arrival.index].max_new_tokens;
    if (closed_ && !turns_.empty()) {
      for (std::uint32_t turn = turns_[arrival.index].next; turn != kNone; turn = turns_[turn].next) {
        end += turns_[turn].wait;
        output += workload.requests[turn].max_new_tokens;
      }
    }
    offered.end = std::max(offered.end, end);
    offered.longest_output = std::max(offered.longest_output, output);
  }
  return offered;
}

void LoadGenerator::link_turns(const LoadConfig& config, const Workload& workload) {
  std::unordered_map<std::uint32_t, std::uint32_t> last_turn;  // of each session; looked up only
  for (std::size_t i = 0; i < size_; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    if (request.session == 0) continue;
    const auto index = static_cast<std::uint32_t>(i);
    const auto [last, is_first] = last_turn.try_emplace(request.session, index);
    if (is_first) continue;
    const std::uint32_t previous = last->second;
    last->second = index;
    if (turns_.empty()) turns_.resize(size_);
    ++num_turns_;
    turns_[previous].next = index;
    Turn& turn = turns_[i];
    turn.previous = previous;
    turn.after_answer = request.think_time.has_value();
    turn.wait = config.time_scale *
                request.think_time.value_or(request.arrival_time - workload.requests[previous].arrival_time);
  }
}

LoadGenerator::Due LoadGenerator::first_due() const {
  Due due{kNever, kNone};
  if (next_arrival_ < arrivals_.size()) due = arrivals_[next_arrival_];
  if (!due_turns_.empty()) due = std::min(due, due_turns_.top());
  return due;
}

double LoadGenerator::next_time() const {
  if (places_ == 0) return first_due().time;
  if (!kept_.empty()) return kept_.front().time;
  if (in_flight_ >= places_) return kNever;
  return std::max(first_due().time, last_free_);
}

LoadGenerator::Sent LoadGenerator::pop() {
  const double time = next_time();
  Due due{};
  if (!kept_.empty()) {
    due = kept_.front();
    kept_.pop_front();
  } else {
    due = first_due();
    ++in_flight_;
    if (next_arrival_ < arrivals_.size() && arrivals_[next_arrival_].index == due.index) {
      ++next_arrival_;
    } else {
      due_turns_.pop();
    }
  }
  ++sent_;
  bool early = false;
  if (!turns_.empty()) {
    Turn& turn = turns_[due.index];
    turn.sent = time;
    early = turn.previous != kNone && turns_[turn.previous].finished > time;
  }
  return {due.index, time, early, borrowed(workload_->requests[due.index])};
}

void LoadGenerator::on_finished(std::uint64_t index, double now) {
  std::uint32_t next = kNone;
  if (!turns_.empty()) {
    turns_[index].finished = now;
    if (closed_) next = turns_[index].next;
  }
  if (next != kNone && places_ != 0 && turns_[next].wait == 0) {
    kept_.push_back({now, next});
    return;
  }
  if (in_flight_ == places_) last_free_ = now;
  --in_flight_;
  if (next == kNone) return;
  const Turn& turn = turns_[next];
  const double due = turn.after_answer ? now + turn.wait : std::max(turns_[index].sent + turn.wait, now);
  due_turns_.push({due, next});
}

}  // namespace tpsim::scheduler
