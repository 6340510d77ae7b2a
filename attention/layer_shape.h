// One kind of attention layer on one rank.
#pragma once

#include <cstdint>

#include "proto/base/number_format.h"

namespace tpsim::attention {

enum class AttentionForm : std::uint8_t { kMha, kMlaAbsorbed, kMlaExpanded, kSparse };

struct LayerShape {
  AttentionForm form = AttentionForm::kMha;
  std::uint32_t num_q_heads = 0;   // of this rank
  std::uint32_t num_kv_heads = 0;  // of this rank (replicated heads included)
  std::uint32_t head_dim = 0;      // of q and k
  std::uint32_t v_head_dim = 0;
  std::uint32_t sliding_window = 0;   // tokens; 0 = full attention
  std::uint32_t attention_chunk = 0;  // tokens; 0 = none
  std::uint32_t top_k = 0;
  std::uint32_t q_bytes = 2;  // per element of q and of the output
  NumberFormat kv_format = NumberFormat::kBf16;
  // Stored bytes of one token that a kernel of this form reads.
  double kv_token_bytes() const {
    const std::uint32_t values = form == AttentionForm::kMlaAbsorbed ? 0 : v_head_dim;
    return static_cast<double>(num_kv_heads) *
           static_cast<double>(stored_bytes(kv_format, head_dim) + stored_bytes(kv_format, values));
  }
  double kv_element_bytes() const { return static_cast<double>(stored_bytes(kv_format, 16)) / 16; }
};

}  // namespace tpsim::attention
