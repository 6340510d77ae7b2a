// The states of gated delta-net layers: which slot of the pool each request reads and writes, where snapshots
// of its state are taken, and when they become the prefix cache's.
//
// A request has a slot of its own from its admission on: zeros, or a copy of the state at the end of its
// matched prefix. What the tree gets is a state after so and so many tokens:
//  - extra_buffer: passes take snapshots on the way into one of the request's tracking slots (two with
//    overlap scheduling, so that a pass in flight never writes over the last one): an extend after the last
//    multiple of the chunk after its first token, or where another sequence branched off; a decode pass at
//    every track_interval tokens. The tree takes the tracking slot itself, and the request gets another.
//  - no_buffer: the state as it is when a prefill, or a chunk of one, or the request ends: a copy, at the end
//    the slot itself. Needs pages of one token and no overlap.
//
// Speculative decoding: a pass that verifies drafts computes a state after each of them, and the last
// accepted one becomes the request's (commit_mamba_states_after_verify of speculative/spec_utils.py); the
// pool itself never holds what was refused.
//
// Invariant: a request holds its slot and all tracking slots, or none; slots are held by one request or by
// one node of the tree.
//
// Source: SGLang 0.5.23 managers/schedule_batch.py (_mamba_radix_cache_v2_req_prepare_for_extend,
// prepare_for_decode), mem_cache/unified_cache/components/mamba.py, mem_cache/memory_pool.py
// (HybridReqToTokenPool), mem_cache/allocation.py (ensure_mamba_capacity),
// managers/scheduler_components/batch_result_processor.py (_handle_finish_state_updated_req).
#pragma once

#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "kvcache/pools/state_slots.h"
#include "kvcache/prefix_cache.h"
#include "proto/forward.pb.h"
#include "scheduler/config.h"
#include "scheduler/req.h"

namespace tpsim::scheduler {

class RequestStates {
 public:
  // `evict(n)` makes the tree give back n states at least, where it can.
  RequestStates(const StateConfig& config, kvcache::StateSlots& slots, kvcache::PrefixCache& cache,
                std::function<void(std::uint32_t)> evict);

  // The prefix of `req` was matched for its admission: it gets a slot where it goes on from a state.
  void on_match(Req& req, const kvcache::PrefixCache::MatchResult& match);
  // It was not admitted after all.
  void on_refused(Req& req);
  // Makes room for all that these requests do not hold yet, as far as the tree has any.
  void make_room(const std::vector<Req*>& reqs);
  // `req` gets what it lacks. Throws std::logic_error where the pool is empty.
  void bind(Req& req);

  // A pass is formed: an extend of req.prefix_len + req.extend_len, a token of a decode pass that is not
  // mixed.
  void plan_extend(Req& req);
  void plan_decode(Req& req);
  // The result of a decode pass that is not mixed has come; `seq_len` tokens were computed then.
  void on_decoded(Req& req, std::uint32_t seq_len);
  // The same of a pass that verifies drafts: it takes a snapshot where what was accepted goes beyond a
  // multiple of track_interval, and knows of it only then; it is in the next pass that it is priced. `before`
  // and `after`: tokens with KV.
  void plan_verify(Req& req);
  void on_verified(Req& req, std::uint32_t before, std::uint32_t after);
  // Whether the tree may have what `req` leaves: a state without snapshots is of no use to who has fewer
  // tokens.
  bool can_cache(const Req& req) const;

  // Puts what the tree may take of an unfinished or finished request into req.cache.offer.
  void offer_unfinished(Req& req);
  void offer_finished(Req& req);
  // After the insertion.
  void after_unfinished(Req& req);
  // The request leaves the pool; what the tree took stays.
  void release(Req& req);

  // Moves what the next pass has to do with slots into `batch`; the slots of its extend part, too.
  void flush(const std::vector<Req*>& reqs, std::size_t num_extend, proto::ForwardBatch& batch);

  struct Counts {
    std::uint64_t hits = 0;           // admissions that went on from a state of the tree
    std::uint64_t missed_tokens = 0;  // of prefixes whose KV was there, after their last state
  };
  const Counts& counts() const { return counts_; }
  // Slots that `req` holds.
  std::uint32_t held_by(const Req& req) const;

  auto state() {
    return std::tie(counts_, copies_from_, copies_to_, snapshot_rows_, snapshot_lens_, snapshot_slots_);
  }

 private:
  bool tracks() const { return config_.tracking_slots > 0; }
  std::uint32_t alloc_or_evict();
  void take_snapshot(Req& req, std::uint32_t tokens, std::uint32_t slot);
  void copy(std::uint32_t from, std::uint32_t to);

  const StateConfig config_;
  kvcache::StateSlots& slots_;
  kvcache::PrefixCache& cache_;
  std::function<void(std::uint32_t)> evict_;
  Counts counts_;
  // For the next pass: copies before it (from kNone: zeros), snapshots in it.
  std::vector<std::uint32_t> copies_from_, copies_to_;
  std::vector<std::uint32_t> snapshot_rows_, snapshot_lens_, snapshot_slots_;
};

}  // namespace tpsim::scheduler
