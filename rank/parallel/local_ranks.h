// The ranks of a deployment that one process stands in for.
//
// Ranks see the same batches, so they share one RankState; with data-parallel attention, those of one
// data-parallel rank do, and every process keeps and prices them all, because all run every pass together and
// the slowest decides. Where their shards have the same shapes they also share one RankModel: a pass is
// priced once and accounted for each rank, with the same result as pricing it for each. With pipeline stages,
// ranks are numbered stage by stage, all stages see the same batches, and each has a RankModel of its own. An
// injected slowdown multiplies what a rank computes (attention, GEMM, other), not its launches and not the
// wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "proto/forward.pb.h"
#include "proto/report.pb.h"
#include "rank/llm/rank_model.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/image_encoding.h"
#include "rank/parallel/rank_state.h"
#include "scheduler/executor.h"

namespace tpsim::rank {

// What every process knows of the whole deployment; entry r of the vectors is rank r.
struct DeploymentConfig {
  std::uint32_t tp_size = 1;
  std::uint32_t dp_size = 1;     // data-parallel ranks of tp_size / dp_size ranks each
  std::uint32_t pp_size = 1;     // stages of tp_size ranks each
  RankStateConfig state;         // of each data-parallel rank; state.rank is filled in
  std::vector<double> slowdown;  // num_ranks() factors
  // KV cache of one token on a rank of each stage, in bytes; empty: state.kv_bytes_per_token.
  std::vector<std::uint64_t> stage_kv_bytes = {};
  // num_ranks() reports with what does not depend on the run: heads, weight_bytes, kv_pool_bytes.
  std::vector<proto::RankReport> ranks;
  ImageEncoderConfig images;  // of each data-parallel rank

  std::uint32_t num_ranks() const { return tp_size * pp_size; }
};

// Reads the values of --rank-slowdown, each "RANK:FACTOR" ("3:1.2": rank 3 takes 1.2 times as long to
// compute), into one factor per rank; a rank that none names has 1. Throws UserError for anything else: a
// factor is a finite number >= 1, a rank is below `tp_size` and named once.
std::vector<double> parse_rank_slowdowns(std::span<const std::string> values, std::uint32_t tp_size);

// When the slowest of some ranks has done a pass, in seconds.
struct StepTimes {
  double arrival = 0;     // everything before the collectives
  double collective = 0;  // after the last rank has arrived
  double host = 0;
  double issue = 0, launches = 0;  // as StepOutcome's

  double step_time() const { return arrival + collective; }
  scheduler::StepOutcome outcome() const {
    return {.step_time = step_time(), .host_time = host, .issue_time = issue, .launches = launches};
  }
  void take_slowest(const StepTimes& other);
  friend bool operator==(const StepTimes&, const StepTimes&) = default;
};

class LocalRanks {
 public:
  // Ranks first_rank … first_rank + num_ranks - 1. `models` is one model for all of them (identical shards),
  // one for each stage of the whole deployment, or, of one stage, one for each of them; whose answers hang on
  // no pass before may be those of other LocalRanks of the same thread. Throws std::invalid_argument for
  // other numbers.
  LocalRanks(const DeploymentConfig& config, std::uint32_t first_rank, std::uint32_t num_ranks,
             std::vector<std::shared_ptr<RankModel>> models);

  std::uint32_t first_rank() const { return first_rank_; }
  std::uint32_t num_ranks() const { return num_ranks_; }
  bool identical_shards() const { return models_.size() == pp_size_; }
  std::uint64_t next_sequence_number() const { return states_.front().next_sequence_number(); }

  // Applies and prices `batch`; returns the slowest of the ranks of this process.
  // Throws UserError for a batch that RankState refuses.
  StepTimes price(const proto::ForwardBatch& batch);
  // The slowest of the whole deployment in the pass priced last. REQUIRES: identical_shards().
  StepTimes slowest_of_deployment() const;
  // Adds the pass priced last to the totals; the slowest rank of the deployment arrived at `arrival`. Of
  // several stages, whose ranks wait for each other only, each has its own.
  void account(double arrival);
  // Of several pipeline stages, in the pass priced last; empty where there is one.
  std::span<const scheduler::StageOutcome> stages() const { return stages_; }

  // Ranks that do the same in every pass: of the whole deployment where shards are identical, else of this
  // process.
  std::vector<RankGroup> groups() const;
  // What each of groups() spent in the pass that was accounted for last.
  void last_pass(std::vector<RankSeconds>& seconds) const;

  // Requests and images that the ranks know of are gone, with their server; totals stay.
  void restart();

  // One report per rank of this process, in rank order.
  std::vector<proto::RankReport> reports() const;

  template <typename Archive>
  void serialize(Archive& archive) {
    for (RankState& state : states_) archive(state);
    for (ImageEncoding& encoding : encodings_) archive(encoding);
    for (const std::shared_ptr<RankModel>& model : models_) {
      if constexpr (Archive::kReads) {
        model->load(archive);
      } else {
        model->save(archive);
      }
    }
    for (Class& ranks : classes_) archive(ranks.prefill, ranks.decode, ranks.mixed);
  }

 private:
  // Totals of the passes of one kind.
  struct PassTotal {
    StepCost cost;
    double wait = 0;

    void write(proto::PassSeconds& seconds) const;
  };
  // What tells the ranks of a group from others.
  struct GroupKey {
    std::size_t cost = 0;  // position in costs_
    double slowdown = 1;
    friend bool operator==(const GroupKey&, const GroupKey&) = default;
  };
  // Ranks with the same model and slowdown have the same totals.
  struct Class {
    std::size_t cost = 0;  // position in costs_
    std::uint32_t stage = 0;
    double slowdown = 1;
    PassTotal prefill, decode, mixed;

    PassTotal& total(proto::ForwardMode mode);
  };

  const std::vector<proto::RankReport> ranks_;
  const std::vector<double> slowdown_;
  std::uint32_t stage_of(std::uint32_t rank) const { return rank / tp_size_; }
  std::uint32_t dp_rank(std::uint32_t rank) const { return rank % tp_size_ / ranks_of_dp_; }
  // Position in costs_ of what `rank` costs. REQUIRES: a rank of this process, or identical_shards().
  std::size_t cost_of(std::uint32_t rank) const {
    return identical_shards() ? std::size_t{stage_of(rank)} * states_.size() + dp_rank(rank)
                              : rank - first_rank_;
  }
  GroupKey key_of(std::uint32_t rank) const { return {cost_of(rank), slowdown_[rank]}; }
  StepTimes slowest_of_stage(std::uint32_t stage) const;
  void price_stages();
  void apply(const proto::ForwardBatch& batch);
  // The model that prices entry `cost` of costs_, and the data-parallel rank whose batch it prices.
  RankModel& model_of(std::size_t cost) {
    return *models_[identical_shards() ? cost / states_.size() : cost];
  }
  std::size_t dp_rank_of(std::size_t cost) const;

  const std::uint32_t first_rank_;
  const std::uint32_t num_ranks_;
  const std::uint32_t tp_size_;
  const std::uint32_t pp_size_;
  const std::uint32_t ranks_of_dp_;
  const std::vector<std::uint64_t> stage_kv_bytes_;
  std::uint64_t page_tokens_;
  std::vector<double> slowest_slowdown_;  // of the whole deployment, per stage and data-parallel rank
  std::vector<RankState> states_;         // per data-parallel rank
  std::vector<std::shared_ptr<RankModel>> models_;
  std::vector<ImageEncoding> encodings_;    // per data-parallel rank
  std::vector<EncoderCost> encoder_costs_;  // of the pass applied last, likewise
  // Of the pass applied last, per data-parallel rank.
  std::vector<attention::ForwardMetadata> metadata_;
  std::vector<std::uint32_t> global_num_tokens_, global_num_tokens_for_logprob_;
  // Of the pass priced last: per stage and data-parallel rank where shards are identical, else per rank of
  // this process.
  std::vector<StepCost> costs_;
  std::vector<StepTimes> stage_times_;  // of several stages, the slowest of the deployment
  std::vector<scheduler::StageOutcome> stages_;
  double arrival_ = 0;                     // of the slowest rank, in the pass accounted for last
  proto::ForwardMode mode_ = proto::IDLE;  // of that pass
  std::vector<Class> classes_;
  std::vector<std::size_t> class_of_;  // per local rank
  std::vector<GroupKey> group_keys_;   // of groups()
};

// What a process does with batches for the ranks that it stands in for, as the loop of its messages
// (run_worker) sees it: pricing or computing.
class WorkerRanks {
 public:
  virtual ~WorkerRanks() = default;
  // Carries out `batch` and appends to `answer` what process 0 wants to hear of it. `synchronous`: process 0
  // waits for the answer and sends outcome() afterwards.
  // Throws UserError for a batch that cannot be carried out.
  virtual void forward(const proto::ForwardBatch& batch, bool synchronous, std::vector<char>& answer) = 0;
  // The slowest rank of the deployment arrived at `arrival` (seconds) in the batch before.
  virtual void outcome(double arrival) = 0;
  // One report per rank of this process, in rank order.
  virtual std::vector<proto::RankReport> reports() const = 0;
};

// Ranks that price their batches.
class PricedRanks : public WorkerRanks {
 public:
  explicit PricedRanks(LocalRanks ranks) : ranks_(std::move(ranks)) {}
  // The answer: one StepTimes where synchronous, else the step time of the slowest rank.
  void forward(const proto::ForwardBatch& batch, bool synchronous, std::vector<char>& answer) override;
  void outcome(double arrival) override { ranks_.account(arrival); }
  std::vector<proto::RankReport> reports() const override { return ranks_.reports(); }

 private:
  LocalRanks ranks_;
};

// Throws UserError unless `batch` has one for each of `dp_size` ranks.
inline void check_dp_batches(const proto::ForwardBatch& batch, std::size_t dp_size) {
  const auto given = static_cast<std::size_t>(batch.dp_batches_size());
  if (given == (dp_size == 1 ? 0 : dp_size)) return;
  throw_user_error("batch {} is of {} data-parallel ranks, this deployment has {}", batch.sequence_number(),
                   given == 0 ? 1 : given, dp_size);
}

// All ranks of a deployment in this process; needs no MPI.
class ModeledExecutor : public DeploymentExecutor {
 public:
  // REQUIRES: `ranks` are all ranks of the deployment.
  explicit ModeledExecutor(LocalRanks ranks) : ranks_(std::move(ranks)) {}

  // The step takes as long as the slowest rank needs to arrive at the collectives, and the collectives.
  scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override;
  void restart() override { ranks_.restart(); }
  std::vector<proto::RankReport> finish() override { return ranks_.reports(); }
  std::vector<RankGroup> rank_groups() const override { return ranks_.groups(); }
  void last_pass(std::vector<RankSeconds>& seconds) const override { ranks_.last_pass(seconds); }
  void save(StateWriter& state) override;
  void load(StateReader& state) override;

 private:
  LocalRanks ranks_;
};

}  // namespace tpsim::rank
