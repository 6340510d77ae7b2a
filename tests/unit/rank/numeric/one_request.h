// The batch of one request: an extend behind `prefix` tokens, or the decode of one token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/numeric/token_batch.h"

namespace tpsim::testing {

class OneRequest {
 public:
  OneRequest(std::span<const std::uint32_t> tokens, std::uint32_t prefix,
             std::span<const std::uint32_t> pages, proto::ForwardMode mode = proto::EXTEND)
      : tokens_(tokens.begin(), tokens.end()),
        q_lens_{static_cast<std::uint32_t>(tokens.size())},
        prefixes_{prefix},
        seq_lens_{prefix + 1},
        tables_{pages} {
    batch_.metadata.forward_mode = mode;
    if (mode == proto::DECODE) {
      batch_.metadata.decode_seq_lens = seq_lens_;
    } else {
      batch_.metadata.extend_lens = q_lens_;
      batch_.metadata.extend_prefix_lens = prefixes_;
    }
    batch_.token_ids = tokens_;
    batch_.q_lens = q_lens_;
    batch_.prefix_lens = prefixes_;
    batch_.page_tables = tables_;
  }
  OneRequest(const OneRequest&) = delete;
  OneRequest& operator=(const OneRequest&) = delete;

  std::span<const rank::TokenBatch> batches() const { return {&batch_, 1}; }

 private:
  std::vector<std::uint32_t> tokens_, q_lens_, prefixes_, seq_lens_;
  std::vector<std::span<const std::uint32_t>> tables_;
  rank::TokenBatch batch_;
};

}  // namespace tpsim::testing
