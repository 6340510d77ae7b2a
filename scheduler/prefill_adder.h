// Which waiting requests join the next prefill batch: SGLang's PrefillAdder.
//
// Four budgets limit a batch, all in tokens: what is left of the pool if every running request goes on
// (remaining total, where new_token_ratio estimates how much each will still generate), what is left right
// now, the input tokens of one batch (--max-prefill-tokens) and the tokens of one chunk
// (--chunked-prefill-size). Source: SGLang 0.5 schedule_policy.py.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/kv_pool.h"
#include "scheduler/req.h"

namespace tpsim::scheduler {

enum class AddReqResult : std::uint8_t { kContinue, kNoToken, kOther };

class PrefillAdder {
 public:
  // max_new_tokens beyond this is not reserved for (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION).
  static constexpr std::int64_t kClipMaxNewTokens = 4096;

  // `chunk_tokens`: nullopt = no chunked prefill. `mixed_decode_tokens`: decoding requests that share the
  // batch. `radix_disabled` selects SGLang's admission for ignore_eos without a radix pool, which simulates
  // when each running request ends.
  PrefillAdder(KvPool& pool, const std::vector<Req*>& running, double new_token_ratio,
               std::uint32_t max_prefill_tokens, std::optional<std::uint32_t> chunk_tokens,
               std::uint32_t mixed_decode_tokens, bool radix_disabled);

  // The request whose prefill is under way; it always gets a chunk, and is the first of the batch.
  void add_chunked_req(Req& req);
  // Tries to admit `req`, whose prefix was matched. On admission its node is locked and its extend set.
  AddReqResult add_one_req(Req& req);

  const std::vector<Req*>& can_run_list() const { return can_run_list_; }

 private:
  std::int64_t rem_total_tokens() const;
  std::int64_t cur_rem_tokens() const;
  std::int64_t ceil_paged(std::int64_t tokens) const;
  void charge(std::int64_t extend_tokens, std::int64_t max_new_tokens);
  AddReqResult budget_state() const;
  AddReqResult admit(Req& req, std::int64_t extend_tokens);
  AddReqResult add_one_req_ignore_eos(Req& req);
  bool runs_to_end(const Req& req);

  KvPool& pool_;
  const std::vector<Req*>& running_;
  std::int64_t rem_input_tokens_;
  std::optional<std::int64_t> rem_chunk_tokens_;
  bool radix_disabled_;
  // Kept as a double, as the sum over running requests of max_new_tokens x new_token_ratio is in SGLang.
  double total_offset_;
  std::int64_t current_offset_;
  std::vector<Req*> can_run_list_;
  bool has_chunked_ = false;
};

}  // namespace tpsim::scheduler
