// Which of several replicas a request is sent to, as SGLang's router chooses (sglang_router 0.3.2, whose
// policies are those of its crate sgl-model-gateway, src/policies) and as the controller of
// `sglang.launch_server --dp-size` does (managers/data_parallel_controller.py).
//
// A router sees little of its replicas: requests that it has sent and that have not ended, what it remembers
// of prompts, and, for power_of_two, figures that are up to kLoadPollSeconds old.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

enum class RouterPolicy : std::uint8_t {
  kRandom,
  kRoundRobin,
  kPowerOfTwo,     // of two drawn ones, the one with fewer tokens when it was polled last
  kCacheAware,     // where most of the prompt was sent before, unless loads differ too much
  kManual,         // where the request's session was sent before
  kBucket,         // by the length of the prompt (scheduler/router/bucket_router.h)
  kTotalRequests,  // the controller's: the fewest requests in its scheduler
  kTotalTokens     // and the fewest tokens, held or waiting
};

// Where manual sends a session that it does not know, ties drawn.
enum class AssignmentMode : std::uint8_t {
  kRandom,
  kMinLoad,  // the fewest requests sent that have not ended
  kMinGroup  // the fewest sessions that such a request is of
};

struct RouterConfig {
  RouterPolicy policy = RouterPolicy::kCacheAware;
  // Of cache_aware. Shares of a prompt are of its tokens here, of its characters there. bucket has the
  // balance, too, of characters.
  double cache_threshold = 0.3;              // of a prompt; what matches more is followed
  std::uint32_t balance_abs_threshold = 64;  // requests; loads differ too much beyond this
  double balance_rel_threshold = 1.5;        // and this
  double eviction_interval = 60;             // seconds between two evictions; 0: none; of manual, too
  std::uint64_t max_tree_tokens = (std::uint64_t{1} << 26) / 4;  // of each replica, after one
  // Of manual (policies/manual.rs), whose routing keys are sessions here; requests of none are drawn.
  AssignmentMode assignment_mode = AssignmentMode::kRandom;
  double max_idle = 4 * 3600;         // seconds after which an eviction forgets a session; 0: never
  double bucket_adjust_interval = 5;  // seconds between two looks of bucket at its bounds
  double characters_per_token = 4;    // of a prompt, for bucket
  std::uint64_t seed = 1;
  // Where it tells models apart (--enable-igw): the replicas, ascending, of each model, by
  // WorkloadRequest::model from 1; empty: all serve every request.
  std::vector<std::vector<std::uint32_t>> models = {};
  double first_token_seconds = 0;  // by which a client sees its first token later, with others by then

  // Whether a replica's sessions are asked for.
  bool counts_sessions() const {
    return policy == RouterPolicy::kManual && assignment_mode == AssignmentMode::kMinGroup;
  }
  // Whether loads differ too much.
  bool imbalanced(std::uint64_t least, std::uint64_t most) const {
    return most - least > balance_abs_threshold &&
           static_cast<double>(most) > static_cast<double>(least) * balance_rel_threshold;
  }
};

// The first multiple of `interval` after `now`.
inline double next_multiple(double now, double interval) {
  return (std::floor(now / interval) + 1) * interval;
}

// What a router can know of its replicas, when it asks.
class RoutedReplicas {
 public:
  // Of the scheduler.
  struct Load {
    std::uint64_t requests = 0;  // that run or wait
    std::uint64_t tokens = 0;    // that they hold or ask for
  };
  virtual ~RoutedReplicas() = default;
  // Requests sent to each that have not ended.
  virtual std::span<const std::uint64_t> in_flight() const = 0;
  // Sessions of which one of them is.
  virtual std::uint64_t sessions(std::size_t /*replica*/) const { return 0; }
  virtual Load load(std::size_t replica) const = 0;
  // Those that a request may be sent to, ascending; empty: all.
  virtual std::span<const std::uint32_t> available() const { return {}; }
};

class Router {
 public:
  virtual ~Router() = default;
  // The available replica for a request that comes at `now` (seconds, not before the one of the last call).
  // REQUIRES: as many replicas as the router was made for.
  virtual std::size_t choose(const WorkloadRequest& request, double now, const RoutedReplicas& replicas) = 0;
  // Whether choose() of this request, which is the next one, looks at what replicas do: they must have come
  // to `now` then. Else in_flight() may be what each has at the most, as it is here.
  virtual bool looks(const WorkloadRequest& /*request*/, double /*now*/,
                     std::span<const std::uint64_t> /*in_flight*/) {
    return true;
  }
  // Whether it never does, nor ever will.
  virtual bool never_looks() const { return false; }
  // Whether one of the available replicas, ascending, may get the request.
  virtual bool serves(const WorkloadRequest& /*request*/, std::span<const std::uint32_t> available) const {
    return !available.empty();
  }
  // Time begins again at 0; what it remembers of prompts stays.
  virtual void restart_clock() {}
};

std::unique_ptr<Router> make_router(const RouterConfig& config, std::size_t replicas);

}  // namespace tpsim::scheduler
