#include "attention/mla_extend.h"

#include <algorithm>
#include <cstddef>

namespace tpsim::attention {
namespace {

struct Lengths {
  std::uint64_t prefix = 0, all = 0;
  std::uint32_t requests = 0;
};

// A mixed batch is an extend batch: a decoding request extends its cached tokens by one.
Lengths lengths_of(const ForwardMetadata& metadata) {
  Lengths sum;
  sum.requests = static_cast<std::uint32_t>(metadata.extend_lens.size());
  for (std::size_t i = 0; i < metadata.extend_lens.size(); ++i) {
    sum.prefix += metadata.extend_prefix_lens[i];
    sum.all += metadata.extend_prefix_lens[i] + std::uint64_t{metadata.extend_lens[i]};
  }
  if (metadata.forward_mode != proto::MIXED) return sum;
  sum.requests += static_cast<std::uint32_t>(metadata.decode_seq_lens.size());
  for (const std::uint32_t length : metadata.decode_seq_lens) {
    sum.prefix += length - 1;
    sum.all += length;
  }
  return sum;
}

}  // namespace

MlaExtend mla_extend(const MlaRule& rule, const MlaOptions& options, const ForwardMetadata& metadata) {
  const MlaExtend absorbed = {.method = MlaForwardMethod::kAbsorbed, .chunk_tokens = 0, .joins = rule.joins};
  if (metadata.forward_mode == proto::DECODE || verifies_drafts(metadata.forward_mode) || metadata.in_pieces)
    return absorbed;
  if (rule.ragged && !options.ragged) return absorbed;
  const Lengths sum = lengths_of(metadata);
  if (sum.prefix == 0) return {MlaForwardMethod::kMha};
  if (rule.prefix == MlaPrefix::kAbsorbed || !options.chunked_prefix_cache) return absorbed;
  if (rule.prefix == MlaPrefix::kFromThreshold && sum.prefix < options.chunked_prefix_cache_threshold)
    return absorbed;
  if (rule.one_shot && sum.all <= options.max_kv_chunk_capacity) return {MlaForwardMethod::kMhaOneShot};
  // All requests have an equal share of the capacity.
  return {MlaForwardMethod::kMhaChunkedKv, std::max(1U, options.max_kv_chunk_capacity / sum.requests)};
}

}  // namespace tpsim::attention
