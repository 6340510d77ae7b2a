// SGLang's policy bucket (sgl-model-gateway, src/policies/bucket.rs of sglang_router 0.3.2): of a pair's
// prefill servers each takes prompts of some lengths, so that all get as many characters, unless some got too
// many more of late.
//
// Lengths are characters, `RouterConfig::characters_per_token` of each token. Every `bucket_adjust_interval`
// seconds bounds are drawn anew by the prompts of the last such stretch, if they are more than twice or less
// than half as much as when they were drawn last. At first the whole lengths that a number has are divided
// evenly, so that one server has all prompts: the real one has bounds below 4,096 characters only until its
// second server is up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "scheduler/router/router.h"

namespace tpsim::scheduler {

class BucketRouter : public Router {
 public:
  // REQUIRES: replicas >= 1, config.bucket_adjust_interval > 0.
  BucketRouter(const RouterConfig& config, std::size_t replicas);

  std::size_t choose(const WorkloadRequest& request, double now, const RoutedReplicas& replicas) override;
  // It goes by what it sent itself.
  bool looks(const WorkloadRequest&, double, std::span<const std::uint64_t>) override { return false; }
  void restart_clock() override;

 private:
  struct Sent {
    double time;
    std::uint64_t characters;
    std::size_t replica;
  };
  std::size_t choose_by(std::uint64_t characters) const;
  void note(const Sent& sent);
  void adjust();

  const RouterConfig config_;
  double next_adjustment_;
  std::deque<Sent> sent_;                  // of the last stretch, as of the last request
  std::vector<std::uint64_t> by_replica_;  // characters in it
  std::vector<std::uint64_t> longest_;     // characters: what each bucket ends with, ascending
  std::uint64_t drawn_for_ = 0;            // characters of a bucket, when bounds were drawn last
};

}  // namespace tpsim::scheduler
