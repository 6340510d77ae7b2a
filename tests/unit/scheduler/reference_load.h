// LoadGenerator as its definition reads, with the whole workload before it: every turn knows the one before
// and the one behind it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <unordered_map>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/load.h"
#include "scheduler/request_source.h"
#include "scheduler/workload/sampler.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Requests of a workload, that must outlive whoever gets one. A request's id is its position in it.
class ReferenceLoad : public RequestSource {
 public:
  ReferenceLoad(const LoadConfig& config, const Workload& workload);

  std::uint64_t size() const override { return size_; }
  // Requests that reply to an answer: all turns of sessions but the first.
  std::size_t turns() const { return num_turns_; }
  bool exhausted() const { return sent_ == size_; }
  // The rate is LoadConfig::request_rate (of conversations, times their mean number of turns), or that of the
  // trace over the time it spans, however late turns are sent that wait for an answer.
  const Offered& offered() const { return offered_; }
  double next_time() const override;
  Sent pop() override;
  void on_finished(std::uint64_t id, double now) override;

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  struct Due {
    double time;
    std::uint32_t index;
    friend auto operator<=>(const Due&, const Due&) = default;
  };
  // A request as a turn of its session.
  struct Turn {
    std::uint32_t previous = kNone;
    std::uint32_t next = kNone;
    double wait = 0;  // seconds after the end of the answer before, or after the sending of that turn
    bool after_answer = false;  // which of the two
    double sent = kNever;
    double finished = kNever;
  };

  void link_turns(const LoadConfig& config, const Workload& workload);
  Offered offered_by(const LoadConfig& config, const Workload& workload) const;
  bool starts_alone(std::size_t index) const {
    return !closed_ || turns_.empty() || turns_[index].previous == kNone;
  }
  // The earliest that is due, of arrivals and turns; time kNever for none.
  Due first_due() const;

  const Workload* workload_;
  std::size_t size_;
  std::size_t sent_ = 0;
  std::size_t num_turns_ = 0;
  bool closed_;
  std::vector<Due> arrivals_;  // ascending
  std::size_t next_arrival_ = 0;
  std::vector<Turn> turns_;  // by request; empty where no session has a second turn
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_turns_;
  std::uint32_t places_;        // 0 = no limit
  std::multiset<double> free_;  // since when each place is free, that is
  Offered offered_;
  std::deque<Due> kept_;  // turns that follow in the place of the turn before them
};

inline ReferenceLoad::ReferenceLoad(const LoadConfig& config, const Workload& workload)
    : workload_(&workload),
      size_(workload.requests.size()),
      closed_(config.session_mode == SessionMode::kClosed),
      places_(config.max_concurrency) {
  for (std::uint32_t i = 0; i < places_; ++i) free_.insert(0);
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

inline Offered ReferenceLoad::offered_by(const LoadConfig& config, const Workload& workload) const {
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

inline void ReferenceLoad::link_turns(const LoadConfig& config, const Workload& workload) {
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

inline ReferenceLoad::Due ReferenceLoad::first_due() const {
  Due due{kNever, kNone};
  if (next_arrival_ < arrivals_.size()) due = arrivals_[next_arrival_];
  if (!due_turns_.empty()) due = std::min(due, due_turns_.top());
  return due;
}

inline double ReferenceLoad::next_time() const {
  if (places_ == 0) return first_due().time;
  if (!kept_.empty()) return kept_.front().time;
  if (free_.empty()) return kNever;
  return std::max(first_due().time, *free_.begin());
}

inline ReferenceLoad::Sent ReferenceLoad::pop() {
  const double time = next_time();
  Due due{};
  if (!kept_.empty()) {
    due = kept_.front();
    kept_.pop_front();
  } else {
    due = first_due();
    if (places_ != 0) free_.erase(free_.begin());
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

inline void ReferenceLoad::on_finished(std::uint64_t index, double now) {
  std::uint32_t next = kNone;
  if (!turns_.empty()) {
    turns_[index].finished = now;
    if (closed_) next = turns_[index].next;
  }
  if (next != kNone && places_ != 0 && turns_[next].wait == 0) {
    kept_.push_back({now, next});
    return;
  }
  if (places_ != 0) free_.insert(now);
  if (next == kNone) return;
  const Turn& turn = turns_[next];
  const double due = turn.after_answer ? now + turn.wait : std::max(turns_[index].sent + turn.wait, now);
  due_turns_.push({due, next});
}

}  // namespace tpsim::scheduler
