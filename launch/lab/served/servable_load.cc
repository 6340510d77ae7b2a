#include "launch/lab/served/servable_load.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "launch/deployment/images.h"
#include "launch/deployment/resolve.h"
#include "launch/deployment/speculation.h"
#include "launch/flags/server_args.h"
#include "launch/simulation/simulate.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/error.h"
#include "proto/base/random.h"

namespace tpsim::launch {
namespace {

constexpr double kAll = 0.95;  // of the drafts: what counts as all
constexpr double kGoldenRatio = 0.618033988749895;
constexpr std::uint32_t kMostAlone = 4096;  // steps

// What requests of a measured n-gram load keep of their steps, told from the mean that its batch log names.
//
// An n-gram cache offers nothing until an answer repeats itself, then longer chains from step to step: what a
// step keeps was 1 … 1, 3, 5, 11 and all, or all as soon as there are no more drafts (answers of dummy
// weights, SGLang 0.5.12, 4, 8 and 16 drafts; servers with other hosts kept the same of the same prompts).
class NgramAnswers {
 public:
  // `means`: MeasuredLoad::accept_lens. `drafts`: the most tokens that a step keeps. None where even late
  // steps lose drafts: such answers do not only repeat.
  static std::optional<NgramAnswers> of(const std::vector<std::pair<std::uint32_t, double>>& means,
                                        std::uint32_t drafts);

  // Tokens kept of each step of the load's request number `request`, until they are `tokens`.
  std::vector<std::uint32_t> of_request(std::size_t request, std::uint32_t tokens) const;

 private:
  // `lost`: drafts that a request loses, in the mean, against one that keeps all from its first step.
  NgramAnswers(double lost, std::uint32_t drafts);

  std::uint32_t drafts_;
  double goes_on_ = 0;  // chance that a step that kept one token is followed by another
};

std::optional<NgramAnswers> NgramAnswers::of(const std::vector<std::pair<std::uint32_t, double>>& means,
                                             std::uint32_t drafts) {
  double lost = 0;
  for (std::size_t i = 0; i < means.size(); ++i) {
    if (means[i].second >= kAll * drafts) return NgramAnswers(lost, drafts);
    if (i + 1 < means.size()) lost += (drafts - means[i].second) * (means[i + 1].first - means[i].first);
  }
  return std::nullopt;
}

NgramAnswers::NgramAnswers(double lost, std::uint32_t drafts) : drafts_(drafts) {
  for (std::uint32_t before = 1, chain = 3; chain < drafts; chain += 2 * std::exchange(before, chain))
    lost -= drafts - chain;
  const double alone = lost / std::max(1U, drafts - 1);  // steps that keep one token, in the mean
  goes_on_ = alone > 1 ? 1 - 1 / alone : 0;
}

std::vector<std::uint32_t> NgramAnswers::of_request(std::size_t request, std::uint32_t tokens) const {
  // Shares of few requests come out whole: multiples of the golden ratio spread evenly.
  const double place = std::fmod(0.5 + static_cast<double>(request) * kGoldenRatio, 1.0);
  std::uint32_t alone = 1;
  for (double later = goes_on_; place < later && alone < kMostAlone; later *= goes_on_) ++alone;
  std::vector<std::uint32_t> lens;
  std::uint32_t before = 1, chain = 1, kept = 0;
  while (kept < tokens) {
    if (lens.size() >= alone) before = std::exchange(chain, std::min(chain + 2 * before, drafts_));
    lens.push_back(chain);
    kept += chain;
  }
  return lens;
}

// A number from 0 to 1 of request `id` at its step `step`, the same in every process.
double draw(std::uint64_t id, std::uint64_t step) {
  return unit_interval(mix64((id << 32 | step) + kGoldenGamma));
}

// The chance of each guess, where a step that verifies `most` - 1 of them in a row keeps `mean` tokens.
double chance_of_guess(double mean, double most) {
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    const double chance = (low + high) / 2;
    double kept = 0, right = 1;
    for (double token = 0; token < most; ++token, right *= chance) kept += right;
    (kept < mean ? low : high) = chance;
  }
  return low;
}

// Tokens kept where one number from 0 to 1 decides on all guesses of a step.
double chain_of(double number, double chance, double most) {
  double length = 1;
  for (double right = chance; length < most && number < right; right *= chance) ++length;
  return length;
}

// What each request keeps of its steps: of a mean between two whole numbers now the lower, now the upper one;
// together, all keep what brings them to the mean. N-grams without repeating answers are right in all their
// drafts or in none, so that answers end one by one and not together.
void set_accept_lens(const MeasuredLoad& load, const scheduler::SpeculationConfig& config,
                     scheduler::Workload& workload) {
  const bool ngram = config.algorithm == scheduler::SpeculativeAlgorithm::kNgram;
  const std::optional<NgramAnswers> repeating =
      ngram ? NgramAnswers::of(load.accept_lens, config.num_draft_tokens) : std::nullopt;
  const double most = config.num_draft_tokens;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    scheduler::WorkloadRequest& request = workload.requests[i];
    if (repeating) {
      request.accept_lens = repeating->of_request(i, request.max_new_tokens);
      continue;
    }
    std::size_t part = 0;
    std::uint32_t kept = 0;
    for (std::uint32_t step = 0; kept < request.max_new_tokens; ++step) {
      while (part + 1 < load.accept_lens.size() && load.accept_lens[part + 1].first <= step) ++part;
      const double mean = load.accept_lens[part].second;
      const double low = std::floor(mean);
      double length = low + (draw(i, step) < mean - low ? 1 : 0);
      if (ngram) length = draw(i, step) * (most - 1) < mean - 1 ? most : 1;
      if (load.accept_chains) length = chain_of(draw(i, step), chance_of_guess(mean, most), most);
      if (load.accept_together) length = std::floor((step + 1) * mean) - std::floor(step * mean);
      request.accept_lens.push_back(static_cast<std::uint32_t>(length));
      kept += request.accept_lens.back();
    }
  }
}

}  // namespace

void LoadRecords::on_request(const scheduler::RequestRecord& record) {
  if (record.state == scheduler::RequestState::kRejected) ++rejected_;
  if (record.state != scheduler::RequestState::kCompleted) return;
  cached_tokens_ += record.cached_tokens;
  sums_.add(record.arrival_time, record.first_token_time, record.finish_time, record.output_tokens);
  cached_.device += record.cached_tokens - record.cached_host - record.cached_storage;
  cached_.host += record.cached_host;
  cached_.storage += record.cached_storage;
}

void LoadRecords::on_step(const scheduler::StepRecord& record) {
  ServedStep step;
  step.decode = record.decode_requests > 0;
  step.prefill = record.extend_requests > 0;
  step.running = record.decode_requests;
  step.kv_tokens = record.pools[kvcache::kKvPool].held;
  step.new_seqs = record.extend_requests;
  step.new_tokens = record.extend_tokens;
  step.end = record.start_time + record.step_time;
  const bool follows = running_ > 0 && !steps_.empty();
  step.seconds = follows ? step.end - steps_.back().end : record.step_time;
  running_ = record.running;
  steps_.push_back(step);
}

ServableLoad::ServableLoad(const MeasuredLoad& load, const std::vector<std::string>& flags)
    : args_(read_run_flags(flags)),
      deployment_(std::move(resolve_deployments(args_, /*compare=*/false).at(0))) {
  if (load.stored_prompts > 0) {
    scheduler::RandomOptions& before = args_.runs_before.emplace_back();
    before.random_input_len = load.stored_tokens;
    before.random_range_ratio = 1;
    before.num_prompts = load.stored_prompts;
    args_.flush_cache = true;
  }
  scheduler::Workload workload = load.workload ? *load.workload : scheduler::in_memory(*load_workload(args_));
  if (!load.accept_lens.empty()) set_accept_lens(load, deployment_.speculation.config, workload);
  place_workload_images(args_, deployment_.model, deployment_.host, workload);
  workload_ = std::make_shared<scheduler::WorkloadInMemory>(std::move(workload));
  check_workload(workload_->outline(), deployment_);
  check_accept_lens(deployment_.speculation, args_.speculation.accept_from_trace, workload_->outline());
}

proto::RunReport ServableLoad::serve(const Deployment& deployment, LoadRecords& records) const {
  rank::ProcessGroup alone;
  alone.tp_size = deployment.ranks.num_ranks();
  const Stage stage(args_, alone, nullptr, nullptr);
  std::optional<std::string> loss;
  proto::RunReport report = serve_deployment(stage, deployment, *workload_, records, loss);
  if (!records.stopped() && records.rejected() > 0)
    throw_user_error("{} of the {} requests do not fit the pool or the context that tpsim finds",
                     records.rejected(), workload_->outline().requests);
  return report;
}

}  // namespace tpsim::launch
