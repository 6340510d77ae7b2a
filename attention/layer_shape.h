// One kind of attention layer on one rank: what its kernels compute with and what is stored for a token. The
// model says it (rank/config), plans and prices and numeric execution read it.
#pragma once

#include <cstdint>

#include "proto/base/number_format.h"

namespace tpsim::attention {

enum class AttentionForm : std::uint8_t {
  kMha,          // keys and values of num_kv_heads heads (MHA, GQA, MQA)
  kMlaAbsorbed,  // all query heads meet the one stored latent, whose first v_head_dim elements are the value
  kMlaExpanded,  // the latent projected to a key and a value for every head (prefill)
  kSparse,       // absorbed, over the top_k tokens that an indexer chose
  kCompressed,   // one latent is key and value, of the last tokens and of compressed ones before them
  kBlockSparse,  // as kMha, over the blocks of tokens that an indexer chose for each KV head
};

struct LayerShape {
  AttentionForm form = AttentionForm::kMha;
  std::uint32_t num_q_heads = 0;   // of this rank
  std::uint32_t num_kv_heads = 0;  // of this rank (replicated heads included); absorbed: 1
  // Absorbed: KV heads that the model's config names, of this rank; 0: as num_kv_heads.
  std::uint32_t config_kv_heads = 0;
  bool few_kv_splits = false;  // absorbed: Triton's decode has no more splits than MHA's
  std::uint32_t head_dim = 0;  // of q and k
  std::uint32_t v_head_dim = 0;
  std::uint32_t sliding_window = 0;   // tokens; 0 = full attention
  std::uint32_t attention_chunk = 0;  // tokens that attend among themselves only (Llama 4); 0 = all
  std::uint32_t dual_chunk_len = 0;   // tokens of a chunk of dual chunk attention; 0 = plain
  // kCompressed: tokens of a compressed one; 0: none are kept. Those that are attended to: the last
  // sliding_window tokens, and all compressed ones or the top_k that its indexer chose.
  std::uint32_t compress_ratio = 0;
  std::uint32_t top_k = 0;         // kSparse, kCompressed, kBlockSparse: tokens that are attended to
  std::uint32_t select_block = 0;  // kBlockSparse: tokens that are chosen together
  std::uint32_t index_heads = 0;   // of the layer's indexer; 0: kSparse takes the selection of a layer before
  std::uint32_t index_head_dim = 0;  // of its keys
  std::uint32_t q_bytes = 2;         // per element of q and of the output
  NumberFormat kv_format = NumberFormat::kBf16;

  std::uint32_t token_bytes = 0;  // kSparse, kCompressed: of one stored token, index key not included

  // kSparse: fp8 latents with scales, the rope part in 16 bit (not the raw fp8 that some kernels read).
  bool scaled_latents() const { return form == AttentionForm::kSparse && fp8_kv() && token_bytes > head_dim; }
  bool fp8_kv() const { return is_fp8(kv_format); }
  // Bytes of one element of the cache, block scales included.
  double kv_bytes() const {
    constexpr std::uint64_t kMany = 16 * 64;  // whole blocks
    return static_cast<double>(stored_bytes(kv_format, kMany)) / kMany;
  }
  // A kernel that reads the latent in the width of its queries has it widened before.
  bool widens_latent() const { return form == AttentionForm::kMlaAbsorbed && kv_bytes() < q_bytes; }
  // Elements that the cache holds for one token of this layer: keys and values, or the latent.
  std::uint32_t kv_elements() const {
    const bool latent = form == AttentionForm::kMlaAbsorbed || form == AttentionForm::kSparse ||
                        form == AttentionForm::kCompressed;
    return latent ? head_dim : num_kv_heads * (head_dim + v_head_dim);
  }
};

}  // namespace tpsim::attention
