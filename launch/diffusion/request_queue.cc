#include "launch/diffusion/request_queue.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace tpsim::launch {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

std::size_t RequestQueue::submit(const rank::GenerationRequest& shape, double now) {
  const std::size_t id = next_id_++;
  const auto replica = static_cast<std::uint32_t>(id % rules_.replicas);  // scheduler_client: in turn
  open_.emplace(id, Open{.shape = shape, .served = {.arrival = now, .replica = replica}});
  replicas_[replica].waiting.push_back(id);
  return id;
}

std::vector<RequestQueue::Ended> RequestQueue::finish(double now) {
  std::vector<Ended> ended;
  for (Replica& replica : replicas_) {
    if (replica.running.empty() || replica.busy_until > now) continue;
    for (const std::size_t id : replica.running) {
      ended.push_back({id, open_.at(id).served});
      open_.erase(id);
    }
    replica.running.clear();
  }
  return ended;
}

// get_next_batch_to_run: those like the first, in the order of arrival; images are not merged.
std::vector<std::size_t> RequestQueue::batch_of(const Replica& replica) const {
  std::vector<std::size_t> batch = {replica.waiting.front()};
  const rank::GenerationRequest& head = open_.at(batch.front()).shape;
  if (!merges(head)) return batch;
  std::uint32_t outputs = head.outputs;
  for (std::size_t i = 1; i < replica.waiting.size() && outputs < rules_.max_outputs; ++i) {
    const rank::GenerationRequest& other = open_.at(replica.waiting[i]).shape;
    if (!alike(head, other) || head.outputs != other.outputs || outputs + other.outputs > rules_.max_outputs)
      continue;
    batch.push_back(replica.waiting[i]);
    outputs += other.outputs;
  }
  return batch;
}

bool RequestQueue::merges(const rank::GenerationRequest& head) const {
  return rules_.batches && rules_.max_outputs > 1 && head.images.empty();
}

std::uint32_t RequestQueue::outputs_of(const std::vector<std::size_t>& batch) const {
  std::uint32_t outputs = 0;
  for (const std::size_t id : batch) outputs += open_.at(id).shape.outputs;
  return outputs;
}

double RequestQueue::waits_until(const Replica& replica) const {
  const Open& head = open_.at(replica.waiting.front());
  return merges(head.shape) && outputs_of(batch_of(replica)) < rules_.max_outputs
             ? head.served.arrival + rules_.delay_seconds
             : 0;
}

void RequestQueue::begin(double now, const Begun& begun) {
  for (Replica& replica : replicas_) {
    if (!replica.running.empty() || replica.waiting.empty() || waits_until(replica) > now) continue;
    replica.running = batch_of(replica);
    rank::GenerationRequest shape = open_.at(replica.running.front()).shape;
    shape.outputs = outputs_of(replica.running);
    replica.busy_until = now + seconds_(shape);
    for (const std::size_t id : replica.running) {
      std::erase(replica.waiting, id);
      Open& open = open_.at(id);
      open.began = true;
      open.served.start = now;
      open.served.end = replica.busy_until;
      open.served.batch = static_cast<std::uint32_t>(replica.running.size());
    }
    if (begun) begun(shape, open_.at(replica.running.front()).served);
  }
}

double RequestQueue::next() const {
  double at = kNever;
  for (const Replica& replica : replicas_) {
    if (!replica.running.empty())
      at = std::min(at, replica.busy_until);
    else if (!replica.waiting.empty())
      at = std::min(at, waits_until(replica));
  }
  return at;
}

const ServedRequest* RequestQueue::running(std::size_t id) const {
  const auto at = open_.find(id);
  return at == open_.end() || !at->second.began ? nullptr : &at->second.served;
}

bool alike(const rank::GenerationRequest& a, const rank::GenerationRequest& b) {
  const auto key = [](const rank::GenerationRequest& r) {
    return std::tie(r.width, r.height, r.frames, r.steps, r.guided, r.prompt_tokens, r.images);
  };
  return key(a) == key(b);
}

std::vector<ServedRequest> serve_queue(const std::vector<QueuedRequest>& requests, const QueueRules& rules,
                                       const BatchSeconds& seconds) {
  std::vector<ServedRequest> served(requests.size());
  RequestQueue queue(rules, seconds);
  std::size_t sent = 0;
  const auto may_send = [&] {
    return sent < requests.size() && (rules.max_concurrency == 0 || queue.num_open() < rules.max_concurrency);
  };
  for (double now = 0; now != kNever;) {
    for (const RequestQueue::Ended& ended : queue.finish(now)) served[ended.id] = ended.served;
    for (; may_send() && requests[sent].arrival <= now; ++sent) queue.submit(requests[sent].shape, now);
    queue.begin(now);
    const double next = queue.next();
    now = may_send() ? std::min(next, std::max(now, requests[sent].arrival)) : next;
  }
  return served;
}

}  // namespace tpsim::launch
