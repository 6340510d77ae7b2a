#include "launch/diffusion/request_queue.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <tuple>

namespace tpsim::launch {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Replica {
  std::deque<std::size_t> waiting;
  std::vector<std::size_t> running;
  double busy_until = 0;
};

class Queue {
 public:
  Queue(const std::vector<QueuedRequest>& requests, const QueueRules& rules,
        const std::function<double(const rank::GenerationRequest&)>& seconds)
      : requests_(requests),
        rules_(rules),
        seconds_(seconds),
        replicas_(rules.replicas),
        served_(requests.size()) {}

  std::vector<ServedRequest> run() {
    double now = 0;
    for (;;) {
      send(now);
      for (Replica& replica : replicas_) begin(replica, now);
      now = next(now);
      if (now == kNever) return std::move(served_);
      for (Replica& replica : replicas_) {
        if (replica.running.empty() || replica.busy_until > now) continue;
        in_flight_ -= replica.running.size();
        replica.running.clear();
      }
    }
  }

 private:
  bool may_send() const { return rules_.max_concurrency == 0 || in_flight_ < rules_.max_concurrency; }

  void send(double now) {
    for (; next_ < requests_.size() && requests_[next_].arrival <= now && may_send(); ++next_, ++in_flight_) {
      served_[next_].arrival = now;
      served_[next_].replica =
          static_cast<std::uint32_t>(next_ % rules_.replicas);  // scheduler_client: in turn
      replicas_[served_[next_].replica].waiting.push_back(next_);
    }
  }

  // get_next_batch_to_run: those like the first, in the order of arrival; images are not merged.
  std::vector<std::size_t> batch_of(const Replica& replica) const {
    std::vector<std::size_t> batch = {replica.waiting.front()};
    const rank::GenerationRequest& head = requests_[batch.front()].shape;
    if (!merges(head)) return batch;
    std::uint32_t outputs = head.outputs;
    for (std::size_t i = 1; i < replica.waiting.size() && outputs < rules_.max_outputs; ++i) {
      const rank::GenerationRequest& other = requests_[replica.waiting[i]].shape;
      if (!alike(head, other) || head.outputs != other.outputs ||
          outputs + other.outputs > rules_.max_outputs)
        continue;
      batch.push_back(replica.waiting[i]);
      outputs += other.outputs;
    }
    return batch;
  }
  bool merges(const rank::GenerationRequest& head) const {
    return rules_.batches && rules_.max_outputs > 1 && head.images.empty();
  }
  std::uint32_t outputs_of(const std::vector<std::size_t>& batch) const {
    std::uint32_t outputs = 0;
    for (const std::size_t i : batch) outputs += requests_[i].shape.outputs;
    return outputs;
  }
  double waits_until(const Replica& replica) const {
    const std::size_t head = replica.waiting.front();
    return merges(requests_[head].shape) && outputs_of(batch_of(replica)) < rules_.max_outputs
               ? served_[head].arrival + rules_.delay_seconds
               : 0;
  }

  void begin(Replica& replica, double now) {
    if (!replica.running.empty() || replica.waiting.empty() || waits_until(replica) > now) return;
    replica.running = batch_of(replica);
    rank::GenerationRequest shape = requests_[replica.running.front()].shape;
    shape.outputs = outputs_of(replica.running);
    replica.busy_until = now + seconds_(shape);
    for (const std::size_t i : replica.running) {
      std::erase(replica.waiting, i);
      served_[i].start = now;
      served_[i].end = replica.busy_until;
      served_[i].batch = static_cast<std::uint32_t>(replica.running.size());
    }
  }

  double next(double now) const {
    double at = kNever;
    for (const Replica& replica : replicas_) {
      if (!replica.running.empty())
        at = std::min(at, replica.busy_until);
      else if (!replica.waiting.empty())
        at = std::min(at, waits_until(replica));
    }
    if (next_ < requests_.size() && may_send()) at = std::min(at, std::max(now, requests_[next_].arrival));
    return at;
  }

  const std::vector<QueuedRequest>& requests_;
  const QueueRules& rules_;
  const std::function<double(const rank::GenerationRequest&)>& seconds_;
  std::vector<Replica> replicas_;
  std::vector<ServedRequest> served_;
  std::size_t next_ = 0, in_flight_ = 0;
};

}  // namespace

bool alike(const rank::GenerationRequest& a, const rank::GenerationRequest& b) {
  const auto key = [](const rank::GenerationRequest& r) {
    return std::tie(r.width, r.height, r.frames, r.steps, r.guided, r.prompt_tokens, r.images);
  };
  return key(a) == key(b);
}

std::vector<ServedRequest> serve_queue(const std::vector<QueuedRequest>& requests, const QueueRules& rules,
                                       const std::function<double(const rank::GenerationRequest&)>& seconds) {
  return Queue(requests, rules, seconds).run();
}

}  // namespace tpsim::launch
