#include "attention/mla_extend.h"

#include <algorithm>
#include <cstddef>

#include "attention/backend.h"

namespace tpsim::attention {
namespace {

struct Lengths {
  std::uint64_t prefix = 0, all = 0;
};

// A mixed batch is an extend batch: a decoding request extends its cached tokens by one.
Lengths lengths_of(const ForwardMetadata& metadata) {
  Lengths sum;
  for (std::size_t i = 0; i < metadata.extend_lens.size(); ++i) {
    sum.prefix += metadata.extend_prefix_lens[i];
    sum.all += metadata.extend_prefix_lens[i] + std::uint64_t{metadata.extend_lens[i]};
  }
  if (metadata.forward_mode != proto::MIXED) return sum;
  for (const std::uint32_t length : metadata.decode_seq_lens) {
    sum.prefix += length - 1;
    sum.all += length;
  }
  return sum;
}

}  // namespace

MlaForwardMethod mla_forward_method(const MlaRule& rule, const MlaOptions& options,
                                    const ForwardMetadata& metadata) {
  if (metadata.forward_mode == proto::DECODE || metadata.in_pieces) return MlaForwardMethod::kAbsorbed;
  if (rule.ragged && !options.ragged) return MlaForwardMethod::kAbsorbed;
  const Lengths sum = lengths_of(metadata);
  if (sum.prefix == 0) return MlaForwardMethod::kMha;
  if (rule.prefix == MlaPrefix::kAbsorbed) return MlaForwardMethod::kAbsorbed;
  if (!options.chunked_prefix_cache) return MlaForwardMethod::kAbsorbed;
  if (rule.prefix == MlaPrefix::kFromThreshold && sum.prefix < options.chunked_prefix_cache_threshold)
    return MlaForwardMethod::kAbsorbed;
  return rule.one_shot && sum.all <= options.max_kv_chunk_capacity ? MlaForwardMethod::kMhaOneShot
                                                                   : MlaForwardMethod::kMhaChunkedKv;
}

std::uint32_t mla_chunk_tokens(const MlaOptions& options, const ForwardMetadata& metadata) {
  std::size_t requests = metadata.extend_lens.size();
  if (metadata.forward_mode == proto::MIXED) requests += metadata.decode_seq_lens.size();
  return std::max(
      1U, options.max_kv_chunk_capacity / static_cast<std::uint32_t>(std::max<std::size_t>(1, requests)));
}

}  // namespace tpsim::attention
