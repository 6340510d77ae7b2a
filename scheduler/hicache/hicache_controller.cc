#include "scheduler/hicache/hicache_controller.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kvcache/pools/page_run.h"

namespace tpsim::scheduler {

// Layers of a load and of a pass take equal parts of either. A layer of the pass begins when it is loaded and
// the one before is done: the last of all such chains counts, which is that of the first or of the last
// layer.
double HostWork::end_of_pass(double start, double seconds) const {
  if (layers == 0) return start + seconds;
  const double load = load_end - load_begin;
  const double first = load_begin + load / layers + seconds;
  const double last = load_end + seconds / layers;
  return std::max({start + seconds, first, last});
}

void HostWork::join(const HostWork& other) {
  cpu_seconds = std::max(cpu_seconds, other.cpu_seconds);
  if (other.layers == 0 || (layers > 0 && load_end >= other.load_end)) return;
  load_begin = other.load_begin;
  load_end = other.load_end;
  layers = other.layers;
}

void HiCacheController::check_events() {
  for (; !writes_.empty() && writes_.front().done <= now_; writes_.pop_front()) {
    copy_now(writes_.front().copies);
    cache_->end_write(writes_.front().node);
    if (storage_) back_up(writes_.front().node);
  }
  for (; !loads_.empty() && loads_.front().done <= now_; loads_.pop_front()) {
    for (const NodeId node : loads_.front().nodes) cache_->end_load(node);
  }
  if (storage_) drain_storage();
}

double HiCacheController::next_event() const {
  double next = kNever;
  if (!writes_.empty()) next = writes_.front().done;
  if (!loads_.empty()) next = std::min(next, loads_.front().done);
  if (!storage_) return next;
  for (const StorageTier::Read& read : storage_->reads()) {
    if (const double stops = storage_->stops_at(read); !read.stopped && stops > now_)
      next = std::min(next, stops);
  }
  return next;
}

void HiCacheController::finish_all() {
  const double now = std::exchange(now_, kNever);
  start_loading();
  check_events();
  now_ = now;
  write_free_ = load_free_ = 0;
  if (storage_) storage_->restart_clock();
  work_ = {};
}

void HiCacheController::on_release(std::uint32_t computed, std::uint32_t decoded) {
  fresh_ = decoded;
  computed_ += computed;
  decoded_ += decoded;
}

std::uint32_t HiCacheController::load_back(NodeId node) {
  std::vector<NodeId> gone;
  for (NodeId each = node; cache_->host().evicted(each); each = cache_->parent(each)) gone.push_back(each);
  const std::uint32_t tokens = cache_->load_back(node);
  if (tokens > 0) {
    queue_.push_back(node);
    for (const NodeId each : gone) copy_now(copies(each, /*to_host=*/false));
  }
  queued_tokens_ += tokens;
  return tokens;
}

double HiCacheController::issue_seconds(const HostCopyCost& cost, std::uint64_t tokens, double runs) const {
  return cost.cpu_seconds + cost.cpu_page_seconds * static_cast<double>(tokens) / page_size_ +
         cost.cpu_run_seconds * runs;
}

void HiCacheController::start_loading() {
  if (queue_.empty()) return;
  // Pages that decode passes opened lie between those of other requests, and leave such gaps to those that
  // come after when they are evicted: what is loaded meets them by their share.
  const double share = computed_ > 0 ? static_cast<double>(decoded_) / static_cast<double>(computed_) : 0;
  const double scattered = share * static_cast<double>(queued_tokens_) / page_size_;
  const double issue =
      issue_seconds(config_.load, queued_tokens_, scattered + 2 * static_cast<double>(queue_.size()));
  const double gpu =
      config_.load.gpu_seconds + config_.load.gpu_token_seconds * static_cast<double>(queued_tokens_);
  work_.load_begin = std::max(load_free_, now_ + work_.cpu_seconds);
  work_.load_end = work_.load_begin + std::max(gpu, issue);
  work_.layers = config_.layers;
  work_.cpu_seconds += issue;
  load_free_ = work_.load_end;
  counts_.loaded_tokens += queued_tokens_;
  ++counts_.loads;
  loads_.push_back({std::exchange(queue_, {}), work_.load_end});
  queued_tokens_ = 0;
}

HostWork HiCacheController::take_work() {
  counts_.cpu_seconds += work_.cpu_seconds;
  return std::exchange(work_, {});
}

// Returns when it is done.
double HiCacheController::write(std::uint32_t tokens) {
  const std::uint64_t scattered = std::min<std::uint64_t>(tokens, std::exchange(fresh_, 0));
  const double issue = issue_seconds(config_.write, tokens, 1 + static_cast<double>(scattered) / page_size_);
  const double gpu = config_.write.gpu_seconds + config_.write.gpu_token_seconds * tokens;
  const double begin = std::max(write_free_, now_ + work_.cpu_seconds);
  write_free_ = begin + std::max(gpu, issue);
  work_.cpu_seconds += issue;
  counts_.written_tokens += tokens;
  return write_free_;
}

std::vector<HiCacheController::Copy> HiCacheController::copies(NodeId node, bool to_host) const {
  std::vector<Copy> out;
  const std::span<const std::uint32_t> host = cache_->host().pages(node);
  if (host.empty()) return out;
  for (const kvcache::PageRun& run : cache_->pages(node)) {
    for (std::uint32_t page = run.first; page < run.first + run.count; ++page) {
      const std::uint32_t copy = host[out.size()];
      out.push_back(to_host ? Copy{page, copy} : Copy{copy, page});
    }
  }
  return out;
}

void HiCacheController::flush_copies(proto::ForwardBatch& batch) {
  for (const Copy& copy : copies_) {
    batch.add_page_copy_from(copy.from);
    batch.add_page_copy_to(copy.to);
  }
  copies_.clear();
}

void HiCacheController::write_through(NodeId node, std::uint32_t tokens) {
  writes_.push_back({node, write(tokens), copies(node, /*to_host=*/true)});
}

void HiCacheController::write_back(NodeId node, std::uint32_t tokens) {
  work_.cpu_seconds = std::max(work_.cpu_seconds, write(tokens) - now_);
  copy_now(copies(node, /*to_host=*/true));
  if (storage_) back_up(node);
}

void HiCacheController::back_up(NodeId node) {
  kvcache::TokenSequence tokens;
  cache_->spell_out(node, tokens);
  const std::uint32_t own = cache_->length(node);
  cache_->protect_host(node);
  storage_->write(node, cache_->extra_key(node), std::move(tokens), own, now_);
  counts_.stored_tokens += own;
}

void HiCacheController::prefetch(std::uint64_t id, NodeId node, const kvcache::TokenSequence& tokens,
                                 std::uint32_t extra_key, std::uint32_t matched) {
  const NodeId host_node = cache_->last_host_node(node);
  const auto length = static_cast<std::uint32_t>(tokens.size());
  std::uint32_t asked = (length - matched) / page_size_ * page_size_;
  if (asked < config_.storage.threshold || prefetching_ >= config_.storage.most_prefetched) return;
  cache_->protect_host(host_node);
  kvcache::HostComponent& host = cache_->host();
  if (host.available() < asked) cache_->evict(kvcache::kHostPool, asked);
  if (host.available() < asked)
    asked = static_cast<std::uint32_t>(host.available()) / page_size_ * page_size_;
  if (asked < config_.storage.threshold) {
    cache_->unprotect_host(host_node);
    return;
  }
  host.reserve(asked);
  prefetching_ += asked;
  StorageTier::Read read{.id = id,
                         .node = host_node,
                         .extra_key = extra_key,
                         .tokens = tokens,
                         .first = matched,
                         .asked = asked};
  // The hashes that are asked for go on from that node's, wherever the match ended.
  if (cache_->depth(host_node) == matched) read.hits = storage_->stored(tokens, matched, asked, extra_key);
  storage_->ask(std::move(read), now_);
}

bool HiCacheController::prefetched(std::uint64_t id, std::uint32_t& tokens) {
  for (StorageTier::Read& read : storage_->reads()) {
    if (read.id != id || read.stopped) continue;
    if (!storage_->may_stop(read, now_)) return false;
    const std::uint32_t done = storage_->completed(read, now_);
    // What is read goes on from the node that was matched.
    const std::uint32_t known =
        done > 0 ? cache_->insert_host(read.node, read.tokens, read.extra_key, read.first + done) : 0;
    tokens = done - known;
    counts_.read_tokens += done;
    end_read(read, done);
    return true;
  }
  return true;
}

void HiCacheController::forget_prefetch(std::uint64_t id) {
  for (StorageTier::Read& read : storage_->reads()) {
    if (read.id == id && !read.stopped) {
      end_read(read, 0);
      return;
    }
  }
}

void HiCacheController::end_read(StorageTier::Read& read, std::uint32_t taken) {
  cache_->unprotect_host(read.node);
  prefetching_ -= read.asked;
  storage_->stop(read, taken, now_);
}

void HiCacheController::drain_storage() {
  kvcache::HostComponent& host = cache_->host();
  for (StorageTier::Read& read : storage_->reads()) {
    if (read.trimmed || read.looked_up > now_) continue;
    host.give_back_reserved(read.asked - read.hits);
    read.trimmed = true;
    if (read.hits == 0 && !read.stopped) end_read(read, 0);
  }
  storage_->forget(now_, [&host](std::uint32_t tokens) { host.give_back_reserved(tokens); });
  for (NodeId node; storage_->next_written(now_, node);) cache_->unprotect_host(node);
}

}  // namespace tpsim::scheduler
