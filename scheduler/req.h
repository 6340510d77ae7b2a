// One request while it is served: SGLang's Req.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "kvcache/pools/state_slots.h"
#include "kvcache/prefix_cache.h"
#include "kvcache/token_runs.h"
#include "scheduler/disaggregation/queues.h"
#include "scheduler/records.h"
#include "scheduler/request_source.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// What a request has of the pool of states (scheduler/request_states.h, which hands them out).
struct HeldStates {
  static constexpr std::uint32_t kNone = kvcache::StateSlots::kNone;
  std::uint32_t slot = kNone;         // that its passes read and write
  std::uint32_t copied_from = kNone;  // a slot of the tree, until its first pass copies it
  std::array<std::uint32_t, 2> tracking = {kNone, kNone};
  std::uint8_t next = 0;            // tracking slot of the next snapshot
  std::uint8_t last = 0;            // of the one that tracked_len is about
  std::uint8_t in_flight = 0;       // of a decode pass whose result is not processed yet
  std::uint32_t tracked_len = 0;    // tokens after which the last snapshot was taken; 0: none
  std::uint32_t previous_len = 0;   // of the one in the other tracking slot, where a verifying pass took both
  bool overshot = false;            // its state is after more tokens than its client got (speculation)
  std::uint32_t branching_len = 0;  // tokens after which the next extend should take one; 0: nowhere special
  std::uint32_t missed_len = 0;     // tokens of the matched prefix after its last state, until its first pass
};

// Invariants while running: kv_committed_len tokens have a place in the KV pool and the request's row names
// their pages; output_len <= max_new_tokens.
struct Req {
  // Touched at every decode step, or while it waits at every match; kept together.
  std::uint32_t output_len = 0;        // tokens generated
  std::uint32_t max_new_tokens = 0;    // clipped by the context length and the pool
  std::uint32_t end_len = 0;           // output at which it ends, where it is not computed: there, or earlier
  std::uint32_t kv_committed_len = 0;  // tokens that have KV slots
  // Speculative decoding: tokens that pages are held for, drafts included; otherwise not above the one
  // before.
  std::uint32_t kv_allocated_len = 0;
  std::uint32_t in_flight = 0;  // launched passes whose result is not processed yet
  std::uint32_t extends = 0;    // passes formed since it was admitted
  std::uint32_t decodes = 0;
  std::uint32_t spelled_output = 0;  // generated tokens that `tokens` has
  // Tokens after its last one that its last step accepted, too; nobody sees them, but older releases cache
  // them.
  std::uint32_t accepted_behind_end = 0;
  double last_token_time = 0;
  // Its place among those whose decode passes are counted (steady_decode.h): what stands above is told later.
  static constexpr std::uint32_t kNotSteady = 0xffffffffU;
  std::uint32_t steady = kNotSteady;
  bool finished = false;
  bool retracted = false;  // while a pass in flight still names it
  bool may_stop = false;   // before max_new_tokens, at an end of sequence
  bool to_finish = false;  // with its next token, whatever that is: its abort reached it (SGLang's to_finish)
  bool in_decode_set = false;
  bool in_running = false;  // named by the running batch
  bool live = false;        // arrived, not yet finished or rejected
  bool cancelled = false;   // its client wants no more of it, whether the scheduler heeds that or not

  std::uint64_t id = 0;  // position in the workload
  RequestPtr source;
  double arrival_time = 0;
  std::uint32_t input_len = 0;

  kvcache::PrefixCache::MatchCursor queue_cursor;  // of the waiting queue's matches
  // Prompt and the generated tokens that have been spelled out so far (spell_out() appends the rest).
  kvcache::TokenSequence tokens;
  kvcache::TokenId output_base = 0;  // id of the first generated token, where the trace names none
  // Numeric execution: what was really generated, output_len ids; empty otherwise.
  std::vector<std::uint32_t> output_ids;
  std::vector<float> prompt_logits;

  kvcache::PrefixCache::RequestState cache;
  HeldStates states;
  kvcache::PrefixCache::MatchCursor admission_cursor;  // of the admission's match
  std::uint32_t num_matched_prefix_tokens = 0;         // of the last match

  std::vector<std::uint32_t> ids_behind_end;  // numeric execution: those accepted after its end

  std::uint32_t verify_ct = 0;  // steps that verified drafts of it (SGLang's spec_verify_ct)

  // The extend that is being formed or runs: positions [prefix_len, prefix_len + extend_len).
  std::uint32_t prefix_len = 0;
  std::uint32_t extend_len = 0;

  std::int64_t priority = 0;           // where priorities are scheduled; the lowest for a request without one
  std::uint64_t queue_entry = 0;       // order of entering the waiting queue
  std::uint32_t known_extend_len = 0;  // tokens to compute as of the last match; what preemption looks at
  std::uint32_t known_fill_len = 0;    // tokens of the sequence as of the last extend

  std::uint64_t in_batch_prefix_hash = 0;  // of the first tokens, for in-batch prefix caching
  bool in_batch_prefix_known = false;

  bool admitted_once = false;
  std::uint32_t cached_tokens = 0;
  std::uint32_t retractions = 0;
  // Hierarchical cache: where what was matched ends, tokens of it that the device had lost, and those that
  // were loaded for this admission; of cached_tokens, those that came from host memory, and from storage.
  kvcache::PrefixCache::NodeId host_node = kvcache::PrefixCache::kRoot;
  std::uint32_t host_hit_len = 0, loaded_len = 0;
  std::uint32_t storage_hit_len = 0;  // tokens that were read from storage into host memory for it
  std::uint32_t cached_host = 0, cached_storage = 0;
  double first_scheduled_time = 0;
  double first_token_time = 0;
  std::vector<Interruption> interruptions;
  KvTransfer transfer;  // where prefill and decode are split

  // Tokens that must be in the KV cache before the next token can be sampled.
  std::uint32_t full_len() const { return input_len + output_len; }
  std::uint32_t fill_len() const { return prefix_len + extend_len; }
  std::uint32_t allocated_len() const {
    return kv_allocated_len > kv_committed_len ? kv_allocated_len : kv_committed_len;
  }

  // Makes `tokens` hold the prompt, all output_len generated tokens and those accepted after the end.
  void spell_out();

  auto state() {
    return std::tie(output_len, end_len, to_finish, cancelled, max_new_tokens, kv_committed_len,
                    kv_allocated_len, in_flight, extends, decodes, last_token_time, finished, retracted,
                    may_stop, in_decode_set, in_running, live, id, source, arrival_time, input_len, tokens,
                    output_base, spelled_output, output_ids, prompt_logits, cache, states, queue_cursor,
                    admission_cursor, num_matched_prefix_tokens, accepted_behind_end, ids_behind_end,
                    verify_ct, prefix_len, extend_len, priority, queue_entry, known_extend_len,
                    known_fill_len, in_batch_prefix_hash, in_batch_prefix_known, admitted_once, cached_tokens,
                    retractions, host_node, host_hit_len, loaded_len, storage_hit_len, cached_host,
                    cached_storage, first_scheduled_time, first_token_time, interruptions);
  }
};

// A request that reached no scheduler.
Req unserved(const RequestSource::Sent& sent);

// What one pass produced, request by request.
struct RequestTokens {
  const Req* req;       // with its new tokens: req->output_len counts them
  std::uint32_t count;  // of them
};

// Requests in it stay valid while it is handed on.
struct PassResult {
  double time = 0;                    // when clients see it; seconds
  bool wants_tokens = false;          // whether `tokens` are collected
  std::vector<RequestTokens> tokens;  // a request that goes on with its prompt has none
  std::vector<const Req*> kv_ready;   // those whose prompt is done: their first tokens came
  std::vector<const Req*> finished;   // completed by this pass, or cancelled before it

  void clear() {
    tokens.clear();
    kv_ready.clear();
    finished.clear();
  }
};

}  // namespace tpsim::scheduler
