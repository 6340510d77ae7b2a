// What attention backends are told of a pass.
#pragma once

#include <cstdint>
#include <span>

#include "proto/forward.pb.h"

namespace tpsim::attention {

// The batch of one forward pass, as every rank knows it (heads are sharded, requests are not).
struct ForwardMetadata {
  proto::ForwardMode forward_mode = proto::IDLE;
  // Extend part (EXTEND, MIXED): tokens per request. TARGET_VERIFY and DRAFT_EXTEND: of each decoding request
  // the tokens in the KV cache and, after them, those that the pass computes.
  std::span<const std::uint32_t> extend_prefix_lens;
  std::span<const std::uint32_t> extend_lens;
  // TARGET_VERIFY: every new token sees the prefix and its own ancestors in a tree of drafts that branches
  // (a mask); else they are a chain.
  bool tree_mask = false;
  // Decode part (DECODE, MIXED): KV length of each decoding request, its new token included.
  std::span<const std::uint32_t> decode_seq_lens;
  // Batch size of the captured graph that runs the decode (>= decode_seq_lens.size()); 0 = eager.
  std::uint32_t capture_bucket = 0;
  // Prefill whose pieces between two attention calls are captured graphs.
  bool in_pieces = false;
  // Data-parallel attention: new tokens, and tokens whose logits are wanted, of every data-parallel rank in
  // this pass (SGLang's names); empty without. A rank whose mode is IDLE still computes what all gather.
  std::span<const std::uint32_t> global_num_tokens;
  std::span<const std::uint32_t> global_num_tokens_for_logprob;
  bool is_extend_in_batch = false;  // some rank extends
  bool is_decode_in_batch = false;  // some rank decodes and extends nothing
  bool is_verify_in_batch = false;  // some rank verifies drafts
  // EXTEND of Gemma 3 where some prompt has images: a backend that masks_images() takes a mask of what every
  // new token sees.
  bool image_mask = false;
  // Passes that verify drafts or extend a draft model after them: new tokens of each request, so that a rank
  // without one pads alike, and whether logits are wanted of one of them only.
  std::uint32_t tokens_per_request = 1;
  bool one_logit_per_request = false;
  // Models with gated delta-nets, where the radix pool keeps states: copies between slots before the pass,
  // slots that begin with zeros, and snapshots taken in it.
  std::uint32_t state_copies = 0;
  std::uint32_t state_clears = 0;
  std::uint32_t state_snapshots = 0;
};

// Whether a pass computes several new tokens of every decoding request, as speculative decoding does.
constexpr bool verifies_drafts(proto::ForwardMode mode) {
  return mode == proto::TARGET_VERIFY || mode == proto::DRAFT_EXTEND;
}

}  // namespace tpsim::attention
