// Dual chunk attention: what of the KV range meets which queries, merged by log-sum-exp.
//
// Sources: An et al. 2024 (Training-Free Long-Context Scaling of Large Language Models); SGLang 0.5.12,
// dual_chunk_flashattention_backend.py, whose three kernel calls are the three parts here. A token sees the
// tokens of its own chunk up to itself (causal), all of the chunk before, and all of every chunk before that.
#include "attention/math/attention_math.h"

namespace tpsim::attention {

void AttentionMath::decode_chunks(const DecodePlan& plan, const AttentionCall& call, const Rows& rows,
                                  std::uint32_t item, std::uint32_t kv_head) {
  const auto part = [&](const DecodeItem& of, const float* q) {
    if (of.kv_begin == of.kv_end) return;
    read_queries(call, q, rows, kv_head);
    attend_in_parts(call, rows, kv_head, of.kv_begin, of.kv_end, kDecodeStep, of.split_tokens);
  };
  part(plan.items[item], call.q);
  part(plan.succ_items[item], call.q_succ);
  part(plan.inter_items[item], call.q_inter);
  finish(call, rows, kv_head);
}

void AttentionMath::extend_chunks(const ExtendPlan& plan, const AttentionCall& call, const Rows& rows,
                                  std::uint32_t kv_head) {
  const auto part = [&](std::uint32_t begin, std::uint32_t end, const float* q) {
    if (begin == end) return;
    read_queries(call, q, rows, kv_head);
    attend_in_parts(call, rows, kv_head, begin, end, plan.tile_n, plan.kv_chunk);
  };
  const std::uint32_t chunk = rows.position / plan.chunk_len * plan.chunk_len;
  const std::uint32_t before = chunk - (chunk > 0 ? plan.chunk_len : 0);
  part(chunk, rows.position + rows.tokens, call.q);
  part(before, chunk, call.q_succ);
  part(0, before, call.q_inter);
  finish(call, rows, kv_head);
}

}  // namespace tpsim::attention
