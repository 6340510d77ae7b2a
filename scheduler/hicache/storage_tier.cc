#include "scheduler/hicache/storage_tier.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tpsim::scheduler {

StorageTier::StorageTier(const StorageConfig& config, std::uint32_t page_size)
    : config_(config), page_size_(page_size), index_({.page_size = page_size}, nullptr, nullptr) {}

std::uint32_t StorageTier::stored(const kvcache::TokenSequence& tokens, std::uint32_t first,
                                  std::uint32_t asked, std::uint32_t extra_key) {
  const std::uint32_t matched = index_.match_prefix(tokens, first + asked, extra_key).matched_tokens;
  return matched > first ? matched - first : 0;
}

std::uint32_t StorageTier::batches(std::uint32_t tokens) const {
  const std::uint32_t batch = StorageConfig::kBatchPages * page_size_;
  return (tokens + batch - 1) / batch;
}

double StorageTier::read_seconds(std::uint32_t tokens) const {
  return batches(tokens) * config_.latency_seconds + config_.read_page_seconds * tokens / page_size_;
}

void StorageTier::ask(Read read, double now) {
  // Batches are looked up until one is not there whole.
  const std::uint32_t looked =
      std::min(batches(read.asked), read.hits / (StorageConfig::kBatchPages * page_size_) + 1);
  const std::uint32_t pages = std::min(read.asked / page_size_, looked * StorageConfig::kBatchPages);
  read.asked_at = now;
  read.looked_up =
      std::max(now, look_up_free_) + looked * config_.latency_seconds + pages * config_.query_page_seconds;
  look_up_free_ = read.looked_up;
  if (read.hits < config_.threshold) read.hits = 0;
  reads_.push_back(std::move(read));
  schedule();
}

// The thread that reads takes what was looked up in its order.
void StorageTier::schedule() {
  double free = read_free_;
  for (Read& read : reads_) {
    if (read.hits == 0) {
      read.begin = read.end = read.looked_up;
      continue;
    }
    if (!read.stopped) {
      read.begin = std::max(free, read.looked_up);
      read.end = read.begin + read_seconds(read.hits);
    }
    free = read.end;
  }
}

std::uint32_t StorageTier::completed(const Read& read, double now) const {
  if (now >= read.end) return read.hits;
  if (now <= read.begin) return 0;
  const std::uint32_t batch = StorageConfig::kBatchPages * page_size_;
  const auto done = static_cast<std::uint32_t>((now - read.begin) / read_seconds(batch));
  return std::min(read.hits, done * batch);
}

bool StorageTier::may_stop(const Read& read, double now) const { return now >= stops_at(read); }

double StorageTier::stops_at(const Read& read) const {
  if (config_.policy == PrefetchPolicy::kBestEffort) return 0;
  if (read.hits == 0) return read.looked_up;
  if (config_.policy == PrefetchPolicy::kWaitComplete) return read.end;
  const auto timeout = [this](std::uint32_t tokens) {
    return std::min(config_.timeout_most_seconds,
                    config_.timeout_seconds + config_.timeout_ki_token_seconds * tokens / 1024);
  };
  // Before it is looked up nobody knows how much there is.
  const double early = read.asked_at + timeout(0);
  return std::min(read.end, early < read.looked_up ? early : read.asked_at + timeout(read.hits));
}

void StorageTier::stop(Read& read, std::uint32_t taken, double now) {
  read.taken = taken;
  if (now < read.end && read.hits > 0) {
    const double batch = read_seconds(StorageConfig::kBatchPages * page_size_);
    const double begun = std::floor(std::max(0.0, now - read.begin) / batch) + 1;
    read.end = std::min(read.end, read.begin + begun * batch);
  }
  read.stopped = true;
  schedule();
}

void StorageTier::write(NodeId node, std::uint32_t extra_key, kvcache::TokenSequence tokens,
                        std::uint32_t own, double now) {
  const auto length = static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t known = stored(tokens, length - own, own, extra_key);
  write_free_ =
      std::max(now, write_free_) + batches(own) * config_.latency_seconds +
      (config_.write_page_seconds * (own - known) + config_.query_page_seconds * known) / page_size_;
  writes_.push_back({node, extra_key, std::move(tokens), write_free_});
}

bool StorageTier::next_written(double now, NodeId& node) {
  if (writes_.empty() || writes_.front().done > now) return false;
  const Write& write = writes_.front();
  index_.insert(write.tokens, static_cast<std::uint32_t>(write.tokens.size()), {}, 0, write.extra_key);
  node = write.node;
  writes_.pop_front();
  return true;
}

}  // namespace tpsim::scheduler
