#include "attention/sparse_plan.h"

#include <algorithm>

namespace tpsim::attention {

std::uint64_t scored_tokens(const SparseItem& item) {
  const std::uint64_t q = item.q_len;
  return q * item.prefix + q * (q + 1) / 2;
}

std::uint32_t selecting_tokens(const SparseItem& item, std::uint32_t top_k) {
  const std::uint64_t length = std::uint64_t{item.prefix} + item.q_len;
  return length <= top_k ? 0
                         : static_cast<std::uint32_t>(std::min<std::uint64_t>(item.q_len, length - top_k));
}

std::uint64_t listed_tokens(const SparseItem& item, std::uint32_t top_k) {
  const std::uint32_t full = selecting_tokens(item, top_k);
  return std::uint64_t{full} * top_k + scored_tokens({item.request, item.prefix, item.q_len - full});
}

}  // namespace tpsim::attention
