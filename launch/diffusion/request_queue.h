// The queue of SGLang's diffusion scheduler (runtime/managers/scheduler.py and scheduler_client.py of
// 0.5.23): replicas in turn, each serving its requests in the order of arrival, one at a time or several of
// equal shape together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

struct QueuedRequest {
  double arrival = 0;  // seconds; where the client bounds its requests in flight: the earliest
  rank::GenerationRequest shape;
};

struct QueueRules {
  std::uint32_t replicas = 1;
  std::uint32_t max_outputs = 1;      // --batching-max-size
  double delay_seconds = 0;           // --batching-delay-ms
  bool batches = true;                // the pipeline's requests may be merged
  std::uint32_t max_concurrency = 0;  // requests in flight; 0: any number
};

struct ServedRequest {
  double arrival = 0, start = 0, end = 0;  // seconds
  std::uint32_t replica = 0;
  std::uint32_t batch = 1;  // requests that ran together
};

// Seconds of a batch: of a request whose outputs are those of all.
using BatchSeconds = std::function<double(const rank::GenerationRequest&)>;

// Requests as they come. At each moment: finish(), submit() what has come, begin().
class RequestQueue {
 public:
  struct Ended {
    std::size_t id = 0;
    ServedRequest served;
  };

  // `seconds` must not throw.
  RequestQueue(const QueueRules& rules, BatchSeconds seconds)
      : rules_(rules), seconds_(std::move(seconds)), replicas_(rules.replicas) {}

  // Ids count from 0, and replicas take them in turn.
  std::size_t submit(const rank::GenerationRequest& shape, double now);
  // What has ended by `now`, which is forgotten here.
  std::vector<Ended> finish(double now);
  // Gives idle replicas what may begin; calls `begun` with the shape of each batch, and how it is served.
  using Begun = std::function<void(const rank::GenerationRequest&, const ServedRequest&)>;
  void begin(double now, const Begun& begun = {});
  // When one of these two has something to do next; infinite: after the next submit().
  double next() const;
  // Of a request that has begun and not ended; null: it waits, or there is none such.
  const ServedRequest* running(std::size_t id) const;
  // Of a replica.
  std::size_t num_waiting(std::size_t replica) const { return replicas_[replica].waiting.size(); }
  std::size_t num_running(std::size_t replica) const { return replicas_[replica].running.size(); }
  std::size_t num_open() const { return open_.size(); }

 private:
  struct Open {
    rank::GenerationRequest shape;
    ServedRequest served;
    bool began = false;
  };
  struct Replica {
    std::deque<std::size_t> waiting;
    std::vector<std::size_t> running;
    double busy_until = 0;
  };

  std::vector<std::size_t> batch_of(const Replica& replica) const;
  bool merges(const rank::GenerationRequest& head) const;
  std::uint32_t outputs_of(const std::vector<std::size_t>& batch) const;
  double waits_until(const Replica& replica) const;

  const QueueRules rules_;
  const BatchSeconds seconds_;
  std::vector<Replica> replicas_;
  std::unordered_map<std::size_t, Open> open_;
  std::size_t next_id_ = 0;
};

// All of `requests`, whose arrivals ascend, by the queue above; in their order.
std::vector<ServedRequest> serve_queue(const std::vector<QueuedRequest>& requests, const QueueRules& rules,
                                       const BatchSeconds& seconds);

// Whether two requests have equal shapes but for the number of outputs.
bool alike(const rank::GenerationRequest& a, const rank::GenerationRequest& b);

}  // namespace tpsim::launch
