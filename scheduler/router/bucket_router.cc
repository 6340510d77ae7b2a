#include "scheduler/router/bucket_router.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tpsim::scheduler {
namespace {

constexpr std::uint64_t kEndless = std::numeric_limits<std::uint64_t>::max();

}  // namespace

BucketRouter::BucketRouter(const RouterConfig& config, std::size_t replicas)
    : config_(config), next_adjustment_(config.bucket_adjust_interval), by_replica_(replicas, 0) {
  const std::uint64_t width = kEndless / replicas;
  for (std::size_t i = 1; i < replicas; ++i) longest_.push_back(i * width - 1);
  longest_.push_back(kEndless);
}

std::size_t BucketRouter::choose(const WorkloadRequest& request, double now, const RoutedReplicas&) {
  if (now >= next_adjustment_) {
    adjust();
    next_adjustment_ = next_multiple(now, config_.bucket_adjust_interval);
  }
  const auto characters = static_cast<std::uint64_t>(
      std::llround(static_cast<double>(request.prompt.size()) * config_.characters_per_token));
  const std::size_t chosen = choose_by(characters);
  note({now, characters, chosen});
  return chosen;
}

void BucketRouter::restart_clock() {
  next_adjustment_ = config_.bucket_adjust_interval;
  for (Sent& sent : sent_) sent.time = 0;
}

std::size_t BucketRouter::choose_by(std::uint64_t characters) const {
  const auto [least, most] = std::ranges::minmax_element(by_replica_);
  if (config_.imbalanced(*least, *most))
    return static_cast<std::size_t>(least - by_replica_.begin());  // the real one draws among equals
  return static_cast<std::size_t>(std::ranges::lower_bound(longest_, characters) - longest_.begin());
}

void BucketRouter::note(const Sent& sent) {
  by_replica_[sent.replica] += sent.characters;
  for (; !sent_.empty() && sent.time - sent_.front().time > config_.bucket_adjust_interval; sent_.pop_front())
    by_replica_[sent_.front().replica] -= sent_.front().characters;
  sent_.push_back(sent);
}

// Buckets take the shortest prompts one after another until each has its share; where those that are left are
// too few, a bucket is as wide as its share has characters.
void BucketRouter::adjust() {
  if (sent_.empty()) return;
  std::vector<std::uint64_t> lengths;
  std::uint64_t share = 0;
  for (const Sent& sent : sent_) {
    lengths.push_back(sent.characters);
    share += sent.characters;
  }
  share /= longest_.size();
  if (drawn_for_ != 0 && share <= 2 * drawn_for_ && drawn_for_ <= 2 * share) return;
  drawn_for_ = share;
  std::ranges::sort(lengths);
  std::size_t next = 0;
  std::uint64_t from = 0;
  for (std::size_t i = 0; i + 1 < longest_.size(); ++i) {
    std::uint64_t longest = from + share;
    std::uint64_t taken = 0;
    while (next < lengths.size()) {
      const std::uint64_t length = lengths[next++];
      taken += length;
      if (taken < share) continue;
      if (length > from) longest = length;
      break;
    }
    longest_[i] = longest;
    from = longest + 1;
  }
}

}  // namespace tpsim::scheduler
