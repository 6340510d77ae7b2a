// Decides which waiting requests go into the next prefill batch: SGLang's PrefillAdder.
//
// It keeps four budgets: what the pool can hold until everything admitted has finished (rem_total, where
// new_token_ratio estimates how much each will still generate), what is left right now, the input tokens of
// one batch (--max-prefill-tokens) and the tokens of one chunk (--chunked-prefill-size). Where sliding-window
// layers have a pool of their own, a fifth: of a request that pool holds one window, and what a chunk writes
// beyond it (SGLang 0.5.23 mem_cache/prefill_budget.py, SWAPrefillBudget).
// Source: SGLang 0.5 schedule_policy.py; what differs between releases is in sglang_release.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/kv_pool.h"
#include "scheduler/releases/sglang_release.h"
#include "scheduler/req.h"
#include "scheduler/steady_decode.h"

namespace tpsim::scheduler {

// SGLang's new_token_ratio: the share of max_new_tokens that admission reserves for running requests.
//
// It starts at 0.7 x conservativeness, decays linearly over 600 decode steps to 14 % of that, jumps up to an
// estimate when requests had to be retracted, and starts again when the server goes idle.
// Constants: SGLang 0.5 environment defaults SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR,
// SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS.
class NewTokenRatio {
 public:
  explicit NewTokenRatio(double schedule_conservativeness)
      : init_(std::min(kInit * schedule_conservativeness, 1.0)),
        min_(std::min(init_ * kMinFactor, 1.0)),
        decay_((init_ - min_) / kDecaySteps),
        current_(init_) {}

  double current() const { return current_; }
  void decay_step() { current_ = std::max(current_ - decay_, min_); }
  void on_retract(double estimate) { current_ = estimate; }
  void on_idle() { current_ = init_; }

  auto state() { return std::tie(current_); }

 private:
  static constexpr double kInit = 0.7;
  static constexpr double kMinFactor = 0.14;
  static constexpr double kDecaySteps = 600;

  double init_;
  double min_;
  double decay_;
  double current_;
};

enum class AddReqResult : std::uint8_t { kContinue, kNoToken, kOther };

class PrefillAdder {
 public:
  // max_new_tokens beyond this is not reserved for (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION).
  static constexpr std::int64_t kClipMaxNewTokens = 4096;

  // Kept from one adder to the next, so that steady use does not allocate.
  struct Lists {
    std::vector<Req*> can_run;
    std::vector<double> charges;
  };
  struct Options {
    double new_token_ratio = 0;
    std::uint32_t max_prefill_tokens = 0;
    std::optional<std::uint32_t> chunk_tokens;  // nullopt = no chunked prefill
    std::uint32_t mixed_decode_tokens = 0;      // decoding requests that share the batch
    const SteadyDecode* steady = nullptr;       // of the running requests, where it counts their passes
    std::span<Req* const> finished = {};        // of the running requests, with `steady`
    Lists* lists = nullptr;                     // null: its own
    bool admits = true;                         // false: none that is not under way (prefill_delayer.h)
  };

  // `running` may lose requests to preemption between two calls; all arguments must outlive the adder.
  PrefillAdder(KvPool& pool, const std::vector<Req*>& running, const Options& options,
               const ReleaseRules& rules);
  PrefillAdder(const PrefillAdder&) = delete;
  PrefillAdder& operator=(const PrefillAdder&) = delete;

  // The request whose prefill is under way; it gets a chunk, and is the first of the batch, unless the window
  // pool has no room for one. Returns whether it did.
  bool add_chunked_req(Req& req);
  // Tries to admit `req`, whose prefix was matched. On admission its node is locked and its extend set.
  AddReqResult add_one_req(Req& req);
  // Whether the budgets of tokens of this batch are spent: kOther.
  AddReqResult budget_state() const;

  // Tokens that admitting `req` lacks; what preemption has to free.
  double missing_tokens(const Req& req) const;
  // What a running request still reserves of the pool.
  double reserved_tokens(const Req& req) const {
    const std::int64_t remaining = std::int64_t{req.max_new_tokens} - output_len(req);
    const auto tokens = static_cast<double>(std::min(remaining, kClipMaxNewTokens));
    return reserves_whole(req) ? tokens : tokens * new_token_ratio_;
  }
  // A running request was preempted: it reserves nothing any more.
  void give_back(const Req& req) {
    sum_exactly();
    total_offset_ -= reserved_tokens(req);
  }

  const std::vector<Req*>& can_run_list() const { return can_run_list_; }
  // Whether a request came as far as being admitted, if it may be: SGLang's negotiate_should_allow_prefill().
  bool asked() const { return asked_; }

 private:
  // The budget of the window pool, where there is one.
  std::int64_t rem_swa_tokens() const;
  std::int64_t swa_tokens(std::int64_t extend_tokens, std::int64_t max_new_tokens,
                          std::optional<std::int64_t> chunk) const;
  bool fits_windows(std::int64_t extend_tokens, const Req& req, std::optional<std::int64_t>& chunk) const;
  std::uint32_t output_len(const Req& req) const {
    return steady_ != nullptr ? steady_->output_len(req) : req.output_len;
  }
  bool reserves_whole(const Req& req) const { return rules_.ignore_eos_reserves_all && !req.may_stop; }
  double reserved_by_running() const;
  void sum_exactly() const;
  double rem_total_tokens() const;
  double total_beyond(double tokens) const;
  std::int64_t cur_rem_tokens() const;
  std::int64_t held_tokens() const;
  std::int64_t ceil_paged(std::int64_t tokens) const;
  bool may_admit() {
    asked_ = true;
    return admits_;
  }
  void charge(std::int64_t extend_tokens, std::int64_t max_new_tokens);
  AddReqResult take(Req& req, std::int64_t extend_tokens, bool whole);
  void load_back(Req& req);
  AddReqResult add_one_req_ignore_eos(Req& req);
  bool runs_to_end(const Req& req, std::int64_t paged_input);

  KvPool& pool_;
  const std::vector<Req*>& running_;
  const ReleaseRules& rules_;
  const SteadyDecode* steady_;
  double new_token_ratio_;
  std::int64_t rem_input_tokens_;
  std::optional<std::int64_t> rem_chunk_tokens_;
  // Doubles, as the sum over running requests of max_new_tokens x new_token_ratio is in SGLang. Where
  // roughly_, that sum is the product of the tokens' sum and the ratio, off by kRoughly at most.
  static constexpr double kRoughly = 0.1;  // tokens; 65,535 summands below 2^28 round by 0.002
  mutable double total_offset_;
  mutable bool roughly_ = false;
  double mixed_decode_tokens_;
  Lists own_lists_;
  std::vector<double>& charges_;  // what was added to the sum since, while roughly_
  std::int64_t current_offset_;
  std::int64_t swa_offset_ = 0;
  std::vector<Req*>& can_run_list_;
  const bool admits_;
  bool asked_ = false;
  bool has_chunk_ = false;  // a request that this batch does not finish; SGLang keeps track of one
  // (tokens left, tokens occupied) of what runs and was tried, where the cache keeps no prefixes.
  std::optional<std::vector<std::pair<double, std::int64_t>>> req_states_;
};

}  // namespace tpsim::scheduler
