// The ranks of this process where batches are really computed: from the deltas of a ForwardBatch to token
// ids, page tables, logits and sampled tokens.
//
// Every process of a deployment runs the same passes and samples the same tokens, so nothing but the
// collectives of the forward pass crosses processes. A decoding request's next input is the token that was
// sampled for its row last; nobody has to send it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/forward.pb.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/token_batch.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/numeric_speculation.h"
#include "rank/parallel/rank_state.h"
#include "scheduler/executor.h"

namespace tpsim::rank {

struct NumericRanksConfig {
  DeploymentConfig deployment;
  std::uint32_t first_rank = 0;
  std::uint32_t num_ranks = 1;
  std::uint32_t vocab_size = 0;
  bool return_logits = false;    // StepOutcome::extend_logits
  std::uint32_t host_pages = 0;  // of host memory, numbered behind those of the device
  bool exclusive_pages = false;  // requests share no pages: there is no radix pool
  DraftingConfig drafting;
};

class NumericRanks : public WorkerRanks {
 public:
  // `collectives` is that of `forward`, for the report; it may be null.
  // `draft`: the passes of a draft model, or null.
  NumericRanks(NumericRanksConfig config, std::unique_ptr<TokenForward> forward,
               const Collectives* collectives, std::unique_ptr<TokenForward> draft = nullptr);

  // Computes one pass; step_time is the wall-clock time of it in this process, in seconds.
  // Throws UserError for a batch that RankState refuses or whose extend part has no tokens.
  scheduler::StepOutcome compute(const proto::ForwardBatch& batch);

  void forward(const proto::ForwardBatch& batch, bool, std::vector<char>&) override { compute(batch); }
  void outcome(double) override {}
  std::vector<proto::RankReport> reports() const override;
  std::uint64_t next_sequence_number() const { return dp_ranks_.front().state.next_sequence_number(); }

  // The vocabulary's token for an id of a workload: ids beyond it (a trace's invented ones) are folded.
  static std::uint32_t fold(std::uint64_t id, std::uint32_t vocab_size);

 private:
  // What is known of the requests of one data-parallel rank.
  struct DpRank {
    explicit DpRank(const RankStateConfig& config) : state(config) {}

    RankState state;
    std::vector<std::uint32_t> last_token;        // per row
    std::vector<proto::SamplingParams> sampling;  // per row
    std::vector<std::uint32_t> decoding;          // before the pass
    std::vector<std::uint32_t> state_slot;        // per row, of the pool of states
    std::vector<std::uint32_t> state_slots;       // of the requests of the pass
    std::vector<StateSnapshot> snapshots;         // of the pass
    std::vector<std::vector<BatchImage>> images;  // per row: of its prompt, as far as it was extended
    std::vector<std::span<const BatchImage>> images_of_pass;
  };

  void apply(std::uint32_t dp_rank, const proto::ForwardBatch& batch, TokenBatch& pass);
  void draft_tokens(DpRank& dp_rank, TokenBatch& pass);
  void extend_drafts(const proto::ForwardBatch& batch);
  void verify_tokens(DpRank& dp_rank, std::span<const float> logits, scheduler::StepOutcome& outcome);
  void add_request(const RankState& state, std::uint32_t row, std::uint32_t prefix_len, std::uint32_t q_len);
  void read_input(const proto::ForwardBatch& batch);
  void read_states(DpRank& dp_rank, const proto::ForwardBatch& batch, std::size_t first, TokenBatch& pass);
  void read_images(DpRank& dp_rank, const proto::ForwardBatch& batch, std::size_t first, TokenBatch& pass);
  static void append_pages(const RankState& state, std::uint32_t row, std::vector<std::uint32_t>& out);
  void release_left(std::uint32_t dp_rank);
  // Between device and host memory.
  void copy_pages(std::uint32_t dp_rank, const proto::ForwardBatch& batch);
  NumericTimes& spent_in(proto::ForwardMode mode);
  void sample_tokens(DpRank& dp_rank, const proto::ForwardBatch& batch, std::size_t first, std::size_t count,
                     std::span<const float> logits);

  NumericRanksConfig config_;
  std::vector<DpRank> dp_ranks_;
  std::unique_ptr<TokenForward> forward_;
  NumericSpeculation speculation_;
  const Collectives* collectives_;
  NumericTimes prefill_, decode_, mixed_;                // of the passes of each kind
  double draft_seconds_ = 0, draft_extend_seconds_ = 0;  // of decode_

  // Of the requests of the pass, one data-parallel rank's after the other.
  std::vector<std::vector<std::uint32_t>> tables_;  // page numbers
  std::vector<std::span<const std::uint32_t>> views_;
  std::vector<std::uint32_t> rows_, prefix_lens_, q_lens_, token_ids_, sampled_;
  std::vector<Verified> verified_;
  std::vector<std::uint32_t> parents_, accept_lens_, next_tokens_;
  std::vector<float> extend_logits_;
  std::vector<TokenBatch> passes_;       // per data-parallel rank
  std::vector<std::uint32_t> requests_;  // of each
};

}  // namespace tpsim::rank
