// The ranks that denoise a sample together, and what they exchange: classifier-free guidance in parallel
// (each group has a prompt of its own), and within a group the tokens of the sequence, by Ulysses (all-to-all
// between tokens and heads), by a ring (keys and values pass round, softmaxes are merged), or both.
//
// Ranks of one place in all these may share the layers' weights besides (tensor parallelism): of a layer each
// has some heads and columns, and what they make is added up.
//
// Rank = ((guidance * ring degree + ring) * ulysses degree + ulysses) * tp size + shard, as SGLang 0.5.23
// lays its groups out (multimodal_gen/runtime/distributed/parallel_state.py). Tokens go round in equal
// shares; where they do not divide, the last ranks have fewer, whose padding nobody computes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/diffusion/backend.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/diffusion/head_attention.h"
#include "rank/numeric/vision/tower.h"

namespace tpsim::rank {

struct SequenceSplit {
  std::uint32_t cfg = 1, ring = 1, ulysses = 1, tp = 1;
  std::uint32_t sequence() const { return ring * ulysses; }
  std::uint32_t ranks() const { return cfg * sequence() * tp; }
};

// Self-attention of a deployment. REQUIRES: what it points to outlives it.
struct SelfAttention {
  const HeadBackend* backend = nullptr;
  attention::DiffusionParameters parameters{};
};

class SequenceRanks {
 public:
  // REQUIRES: split.ranks() is collectives.tp_size(); all three outlive this. Throws UserError naming
  // --ring-degree for a ring of a backend that is not dense.
  SequenceRanks(const SequenceSplit& split, const SelfAttention& attention, Collectives& collectives,
                ThreadPool& pool);

  const SequenceSplit& split() const { return split_; }
  ThreadPool& pool() const { return pool_; }
  std::uint32_t local() const { return collectives_.num_ranks(); }  // ranks of this process
  // Of rank i of this process: which part of the weights is its, which prompt, and which of so many tokens.
  std::uint32_t shard(std::uint32_t i) const { return (collectives_.first_rank() + i) % split_.tp; }
  std::uint32_t prompt(std::uint32_t i) const { return place(i) / split_.sequence(); }
  Share tokens(std::uint32_t i, std::uint32_t count) const;

  using OfPrompts = std::array<std::uint32_t, 2>;  // without guidance in parallel the first alone
  // Per local rank q, k, v and out, [its tokens, heads x dim]. Throws UserError naming --ulysses-degree where
  // it does not divide the heads.
  struct Call {
    std::uint32_t heads = 0, dim = 0;  // of a shard
    attention::GridSize grid{};
    OfPrompts text{};  // tokens in front of the grid's (joint attention), shared out with them
    std::uint32_t layer = 0;
    std::uint32_t count(std::uint32_t prompt) const { return text[prompt] + grid[0] * grid[1] * grid[2]; }
  };
  using PerRank = std::vector<std::vector<float>>;
  void attend(const Call& call, const PerRank& q, const PerRank& k, const PerRank& v, PerRank& out);

  // Each of parts[i] becomes the sum of those of all shards, in their order, plus the bias of its rows
  // (empty: none).
  void reduce(PerRank& parts, const std::vector<float>& bias) const;

  // Of what is attended to from now on, the step of the denoising loop.
  void at_step(std::uint32_t step) { step_ = step; }

  // Of each prompt all tokens, on every rank: parts[i] [its tokens, width], result [prompt][count, width].
  std::vector<std::vector<float>> gather(const PerRank& parts, const OfPrompts& counts, std::uint32_t width);

  // What the local ranks have computed of their self-attention.
  const KeptPairs& pairs() const { return pairs_; }

 private:
  std::uint32_t place(std::uint32_t i) const { return (collectives_.first_rank() + i) / split_.tp; }
  // The one of shard(i) at a place.
  std::uint32_t rank_at(std::uint32_t place, std::uint32_t i) const { return place * split_.tp + shard(i); }
  Share share(std::uint32_t place, std::uint32_t count) const;
  // Tokens of ring place `ring`, those of all its Ulysses ranks.
  Share ring_share(std::uint32_t ring, std::uint32_t count) const;
  void exchange_heads(const Call& call, const std::vector<const PerRank*>& parts, PerRank& heads);
  void attend_rank(const Call& call, std::uint32_t count, const std::vector<float>& heads, float* out,
                   KeptPairs& pairs) const;
  void attend_ring(const Call& call, const PerRank& heads, PerRank& out);

  SequenceSplit split_;
  SelfAttention attention_;
  Collectives& collectives_;
  ThreadPool& pool_;
  KeptPairs pairs_;
  std::uint32_t step_ = 0;
};

}  // namespace tpsim::rank
