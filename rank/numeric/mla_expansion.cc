#include "rank/numeric/mla_expansion.h"

#include <algorithm>
#include <cstddef>

namespace tpsim::rank {

attention::DenseKv MlaExpansion::expand(const Pass& pass, std::uint32_t layer, const MlaConfig& mla,
                                        std::uint32_t heads, const MlaWeights& weights,
                                        const kvcache::KvStore& store, const float* latents,
                                        ThreadPool& pool) {
  const TokenBatch& batch = pass.batch();
  const std::uint32_t width = mla.kv_lora_rank + mla.qk_rope_head_dim;
  const std::uint32_t page_size = store.config().page_size;
  const bool any_prefix = pass.mla().method != attention::MlaForwardMethod::kMha;
  first_row_.clear();
  std::uint32_t rows = 0;
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    first_row_.push_back(rows);
    rows += batch.prefix_lens[i] + batch.q_lens[i];
  }
  latents_.resize(std::size_t{rows} * width);
  pool.parallel_for(static_cast<std::uint32_t>(batch.q_lens.size()), [&](std::uint32_t i, std::uint32_t) {
    const std::uint32_t prefix = batch.prefix_lens[i];
    const std::uint32_t end = prefix + batch.q_lens[i];
    float* const to = latents_.data() + std::size_t{first_row_[i]} * width;
    const bool whole = any_prefix && pass.mla().method == attention::MlaForwardMethod::kMhaOneShot;
    const std::uint32_t cached = whole ? end : prefix;
    for (std::uint32_t at = 0; at < cached;) {
      const std::uint32_t count = std::min(cached - at, page_size - at % page_size);
      const std::uint32_t slot = batch.page_tables[i][at / page_size] * page_size + at % page_size;
      store.load_keys(layer, slot, count, 0, to + std::size_t{at} * width);
      at += count;
    }
    const float* const fresh = latents + std::size_t{pass.first_rows()[i]} * width;
    std::copy(fresh + std::size_t{cached - prefix} * width, fresh + std::size_t{end - prefix} * width,
              to + std::size_t{cached} * width);
  });
  const std::uint32_t own = mla.qk_nope_head_dim + mla.v_head_dim;
  heads_.resize(std::size_t{rows} * heads * own);
  weights.expand.multiply(latents_.data(), rows, width, heads_.data(), heads * own, nullptr, pool);
  return {.first_row = first_row_,
          .heads = heads_.data(),
          .own = mla.qk_nope_head_dim,
          .shared = latents_.data() + mla.kv_lora_rank,
          .stride = width};
}

}  // namespace tpsim::rank
