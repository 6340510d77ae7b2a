// MLA, un-absorbed: keys and values of every head from the latents that an extend sees.
//
// As SGLang's forward_mha.py has it: without a cached prefix, and for the new tokens of a chunked one,
// latents come from this pass's projections; what is cached comes from the cache, in its format; one-shot
// reads all of a batch that has a prefix back from the cache, the new tokens too.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/math/attention_math.h"
#include "kvcache/storage/kv_store.h"
#include "rank/config/model_config.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/pass.h"
#include "rank/numeric/rank_weights.h"

namespace tpsim::rank {

class MlaExpansion {
 public:
  // `latents`: of the pass's tokens, normed, their keys rotated: [tokens, kv_lora_rank + qk_rope_head_dim].
  // The answer is valid until the next call. REQUIRES: pass.mla().expanded().
  attention::DenseKv expand(const Pass& pass, std::uint32_t layer, const MlaConfig& mla, std::uint32_t heads,
                            const MlaWeights& weights, const kvcache::KvStore& store, const float* latents,
                            ThreadPool& pool);

 private:
  std::vector<std::uint32_t> first_row_;
  std::vector<float> latents_;  // [rows, kv_lora_rank + qk_rope_head_dim]
  std::vector<float> heads_;    // [rows, heads, qk_nope_head_dim + v_head_dim]
};

}  // namespace tpsim::rank
