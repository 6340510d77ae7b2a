// One pass as numeric execution sees it: the metadata of RankState with page tables and token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "attention/backend.h"

namespace tpsim::rank {

// In a pass: the state of a request after the first `tokens` of its sequence goes into a slot, too.
struct StateSnapshot {
  std::uint32_t request = 0;  // of the batch
  std::uint32_t tokens = 0;
  std::uint32_t slot = 0;
};

// An image of a request's prompt: its tokens, from `position` on, have embeddings of their own.
struct BatchImage {
  std::uint32_t position = 0;  // of its first token in the sequence
  std::uint32_t tokens = 0;
  std::uint32_t width = 0, height = 0;  // pixels, as it was sent
  std::uint64_t content = 0;            // equal for equal images
};

// Requests in the order of the batch: the extend part, then the decode set. Request i has q_lens[i] new
// tokens after prefix_lens[i] tokens whose KV is stored already; their KV goes to its pages, too. Spans are
// valid during the pass.
struct TokenBatch {
  attention::ForwardMetadata metadata;
  std::span<const std::uint32_t> token_ids;                     // [total new tokens], below vocab_size
  std::span<const std::uint32_t> q_lens;                        // [requests]
  std::span<const std::uint32_t> prefix_lens;                   // [requests]
  std::span<const std::span<const std::uint32_t>> page_tables;  // [requests]: page numbers
  // Rows of the request-to-page table, by which a request keeps what is not in pages; empty: as in the batch.
  std::span<const std::uint32_t> rows;
  // Speculative decoding: of each new token, which of its request's new tokens it follows (the first:
  // itself). Empty: each follows the one before it.
  std::span<const std::uint32_t> parents;
  // Of each request how many of its new tokens, of an EXTEND without a prefix, are no padding: that is behind
  // them, and seen by nobody, itself included. Empty: none is.
  std::span<const std::uint32_t> unpadded;  // [requests]
  bool all_logits = false;                  // of every new token, not only of the last of each request
  // A head that drafts: what it reads beside each new token, [tokens, width]: the target's hidden state, or
  // several of them, or what it was left with itself; empty: nothing.
  std::span<const float> hidden;
  std::uint32_t row(std::uint32_t request) const { return rows.empty() ? request : rows[request]; }
  // Models with gated delta-nets, where the radix pool keeps states: the slot of each request, what is copied
  // between slots before the pass (from slot 0: zeros), and what is kept on the way. All empty: a request's
  // states are its row's, and begin with zeros at its first token.
  std::span<const std::uint32_t> state_slots;  // [requests]
  std::span<const std::uint32_t> state_copy_from;
  std::span<const std::uint32_t> state_copy_to;
  std::span<const StateSnapshot> state_snapshots;
  // The images of each request's prompt that begin before the pass' end, in the order of their positions;
  // those whose tokens are stored already count for the positions after them. Empty: no request has any.
  std::span<const std::span<const BatchImage>> images;  // [requests]
};

// Seconds that this process spent, since the start.
struct NumericTimes {
  double gemm = 0, attention = 0, collective = 0, other = 0;
};

// What became of the images of a data-parallel rank, since the start.
struct ImageTotals {
  std::uint64_t encoded = 0, cache_hits = 0;
  double seconds = 0;  // that this process spent on those of all ranks
};

// What computes a pass; NumericForward, or a stand-in of tests.
class TokenForward {
 public:
  virtual ~TokenForward() = default;
  // The batch of each data-parallel rank (one without data-parallel attention; some may be without requests).
  // fp32 logits [requests, vocab_size] at the last new token of each request (or of every new token, where a
  // batch wants them), one rank's after the other; the same in every process. Valid until the next call.
  virtual std::span<const float> forward(std::span<const TokenBatch> batches) = 0;
  virtual const NumericTimes& times() const = 0;
  // None where the model has no vision encoder, whose forward() throws UserError for a batch with images.
  virtual std::optional<ImageTotals> image_totals(std::uint32_t /*dp_rank*/) const { return std::nullopt; }
  // Where somebody reads them: the hidden states of every new token of the last pass, [tokens, width]. Valid
  // until the next call.
  virtual std::span<const float> hidden() const { return {}; }
  // Keys and values of slot from[i] go to slot to[i], in this order; each slot is page x page size + token.
  virtual void move_tokens(std::uint32_t /*dp_rank*/, std::span<const std::uint32_t> /*from*/,
                           std::span<const std::uint32_t> /*to*/) {}
  // Page to[i] is handed out and gets the keys and values of page from[i], in this order.
  virtual void copy_pages(std::uint32_t /*dp_rank*/, std::span<const std::uint32_t> /*from*/,
                          std::span<const std::uint32_t> /*to*/) {}
  // A request of a data-parallel rank has ended or was retracted, and nobody else has these pages (no radix
  // pool): their keys and values are not needed any more.
  virtual void release_pages(std::uint32_t /*dp_rank*/, std::span<const std::uint32_t> /*pages*/) {}
};

}  // namespace tpsim::rank
