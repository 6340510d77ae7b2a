#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/base/random.h"
#include "scheduler/router/bucket_router.h"
#include "scheduler/router/model_routers.h"
#include "scheduler/router/prompt_tree.h"
#include "scheduler/router/router.h"

namespace tpsim::scheduler {
namespace {

// How often the router asks its replicas for their loads (LoadMonitor, 0.3.2; it has no flag for it). Two
// H200s behind power_of_two got 117 of 138 requests one way for it (shared/data/fleet).
constexpr double kLoadPollSeconds = 30;

// Replicas to choose from, by their position among them.
class Choices {
 public:
  explicit Choices(const RoutedReplicas& replicas)
      : some_(replicas.available()), size_(some_.empty() ? replicas.in_flight().size() : some_.size()) {}
  std::size_t size() const { return size_; }
  std::size_t operator[](std::size_t i) const { return some_.empty() ? i : some_[i]; }
  bool has(std::size_t replica) const { return some_.empty() || std::ranges::binary_search(some_, replica); }

 private:
  const std::span<const std::uint32_t> some_;
  const std::size_t size_;
};

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  // Below `end`.
  std::size_t below(std::size_t end) {
    const double drawn = unit_interval(mix64(mix64(seed_) + kGoldenGamma * ++count_));
    return static_cast<std::size_t>(drawn * static_cast<double>(end));
  }

 private:
  const std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

class RandomRouter : public Router {
 public:
  explicit RandomRouter(std::uint64_t seed) : draws_(seed) {}
  std::size_t choose(const WorkloadRequest&, double, const RoutedReplicas& replicas) override {
    const Choices choices(replicas);
    return choices[draws_.below(choices.size())];
  }
  bool looks(const WorkloadRequest&, double, std::span<const std::uint64_t>) override { return false; }
  bool never_looks() const override { return true; }

 private:
  Draws draws_;
};

class RoundRobinRouter : public Router {
 public:
  std::size_t choose(const WorkloadRequest&, double, const RoutedReplicas& replicas) override {
    const Choices choices(replicas);
    return choices[next_++ % choices.size()];
  }
  bool looks(const WorkloadRequest&, double, std::span<const std::uint64_t>) override { return false; }
  bool never_looks() const override { return true; }

 private:
  std::size_t next_ = 0;
};

class PowerOfTwoRouter : public Router {
 public:
  explicit PowerOfTwoRouter(std::uint64_t seed) : draws_(seed) {}
  std::size_t choose(const WorkloadRequest&, double now, const RoutedReplicas& replicas) override {
    if (now >= next_poll_) {
      polled_.clear();
      for (std::size_t i = 0; i < replicas.in_flight().size(); ++i)
        polled_.push_back(replicas.load(i).tokens);
      next_poll_ = next_multiple(now, kLoadPollSeconds);
    }
    const Choices choices(replicas);
    const std::size_t size = choices.size();
    if (size == 1) return choices[0];
    const std::size_t drawn = draws_.below(size);
    const std::size_t first = choices[drawn];
    const std::size_t second = choices[(drawn + 1 + draws_.below(size - 1)) % size];
    return polled_[first] <= polled_[second] ? first : second;
  }
  bool looks(const WorkloadRequest&, double now, std::span<const std::uint64_t>) override {
    return now >= next_poll_;
  }
  void restart_clock() override { next_poll_ = 0; }

 private:
  Draws draws_;
  std::vector<std::uint64_t> polled_;
  double next_poll_ = 0;
};

class CacheAwareRouter : public Router {
 public:
  CacheAwareRouter(const RouterConfig& config, std::size_t replicas)
      : config_(config), tree_(replicas), next_eviction_(config.eviction_interval) {}

  std::size_t choose(const WorkloadRequest& request, double now, const RoutedReplicas& replicas) override {
    evict(now);
    const auto in_flight = replicas.in_flight();
    const Choices choices(replicas);
    std::size_t chosen = choices[0];
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      most = std::max(most, in_flight[choices[i]]);
      if (in_flight[choices[i]] < in_flight[chosen]) chosen = choices[i];
    }
    const std::optional<std::size_t> followed =
        config_.imbalanced(in_flight[chosen], most) ? std::nullopt : follows(request);
    if (followed && !choices.has(*followed)) {
      tree_.remove(*followed);
      return choices[0];
    }
    chosen = followed.value_or(chosen);
    tree_.insert(request.prompt, chosen);
    return chosen;
  }
  // Loads cannot differ by more than the most that any has.
  bool looks(const WorkloadRequest& request, double now, std::span<const std::uint64_t> in_flight) override {
    evict(now);
    return std::ranges::max(in_flight) > config_.balance_abs_threshold || !follows(request);
  }
  void restart_clock() override { next_eviction_ = config_.eviction_interval; }

 private:
  void evict(double now) {
    if (config_.eviction_interval <= 0 || now < next_eviction_) return;
    tree_.evict(config_.max_tree_tokens);
    next_eviction_ = next_multiple(now, config_.eviction_interval);
  }
  // The replica that saw enough of its prompt.
  std::optional<std::size_t> follows(const WorkloadRequest& request) {
    const PromptTree::Match match = tree_.match(request.prompt);
    const double share = static_cast<double>(match.tokens) / static_cast<double>(request.prompt.size());
    return share > config_.cache_threshold ? std::optional(match.replica) : std::nullopt;
  }

  const RouterConfig config_;
  PromptTree tree_;
  double next_eviction_;
};

class ManualRouter : public Router {
 public:
  explicit ManualRouter(const RouterConfig& config)
      : config_(config), draws_(config.seed), next_eviction_(config.eviction_interval) {}

  std::size_t choose(const WorkloadRequest& request, double now, const RoutedReplicas& replicas) override {
    evict(now);
    const Choices choices(replicas);
    if (request.session == 0) return choices[draws_.below(choices.size())];
    Sent& sent = sessions_[request.session];
    sent.last_time = now;
    for (const std::size_t replica : sent.to)
      if (choices.has(replica)) return replica;
    if (sent.to.size() == kCandidates) sent.to.erase(sent.to.begin());
    sent.to.push_back(assign(choices, replicas));
    return sent.to.back();
  }
  bool looks(const WorkloadRequest& request, double now, std::span<const std::uint64_t>) override {
    evict(now);
    return config_.assignment_mode != AssignmentMode::kRandom && request.session != 0 &&
           !sessions_.contains(request.session);
  }
  void restart_clock() override {
    next_eviction_ = config_.eviction_interval;
    for (auto& [session, sent] : sessions_) sent.last_time = 0;
  }

 private:
  static constexpr std::size_t kCandidates =
      2;  // replicas of a session, of which the first that lives gets it
  struct Sent {
    std::vector<std::size_t> to;  // the oldest first
    double last_time = 0;
  };

  std::size_t assign(const Choices& choices, const RoutedReplicas& replicas) {
    if (config_.assignment_mode == AssignmentMode::kRandom) return choices[draws_.below(choices.size())];
    const bool by_session = config_.assignment_mode == AssignmentMode::kMinGroup;
    std::vector<std::size_t> least;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const auto load = [&](std::size_t replica) {
        return by_session ? replicas.sessions(replica) : replicas.in_flight()[replica];
      };
      if (!least.empty() && load(choices[i]) > load(least.front())) continue;
      if (!least.empty() && load(choices[i]) < load(least.front())) least.clear();
      least.push_back(choices[i]);
    }
    return least[draws_.below(least.size())];
  }
  void evict(double now) {
    if (config_.eviction_interval <= 0 || config_.max_idle <= 0 || now < next_eviction_) return;
    std::erase_if(sessions_, [&](const auto& one) { return now - one.second.last_time >= config_.max_idle; });
    next_eviction_ = next_multiple(now, config_.eviction_interval);
  }

  const RouterConfig config_;
  Draws draws_;
  std::unordered_map<std::uint32_t, Sent> sessions_;
  double next_eviction_;
};

class LeastLoadedRouter : public Router {
 public:
  explicit LeastLoadedRouter(bool by_tokens) : by_tokens_(by_tokens) {}
  std::size_t choose(const WorkloadRequest&, double, const RoutedReplicas& replicas) override {
    std::size_t chosen = 0;
    std::pair<std::uint64_t, std::uint64_t> least;
    for (std::size_t i = 0; i < replicas.in_flight().size(); ++i) {  // the controller knows of no failures
      const RoutedReplicas::Load load = replicas.load(i);
      const std::pair asked(by_tokens_ ? load.tokens : 0, load.requests);
      if (i > 0 && asked >= least) continue;
      chosen = i;
      least = asked;
    }
    return chosen;
  }

 private:
  const bool by_tokens_;
};

}  // namespace

std::unique_ptr<Router> make_router(const RouterConfig& config, std::size_t replicas) {
  if (!config.models.empty()) return std::make_unique<ModelRouters>(config);
  switch (config.policy) {
    case RouterPolicy::kRandom:
      return std::make_unique<RandomRouter>(config.seed);
    case RouterPolicy::kRoundRobin:
      return std::make_unique<RoundRobinRouter>();
    case RouterPolicy::kPowerOfTwo:
      return std::make_unique<PowerOfTwoRouter>(config.seed);
    case RouterPolicy::kCacheAware:
      return std::make_unique<CacheAwareRouter>(config, replicas);
    case RouterPolicy::kManual:
      return std::make_unique<ManualRouter>(config);
    case RouterPolicy::kBucket:
      return std::make_unique<BucketRouter>(config, replicas);
    case RouterPolicy::kTotalRequests:
    case RouterPolicy::kTotalTokens:
      return std::make_unique<LeastLoadedRouter>(config.policy == RouterPolicy::kTotalTokens);
  }
  return nullptr;
}

}  // namespace tpsim::scheduler
