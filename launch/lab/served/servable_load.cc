#include "launch/lab/served/servable_load.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "launch/deployment/images.h"
#include "launch/deployment/resolve.h"
#include "launch/deployment/speculation.h"
#include "launch/flags/server_args.h"
#include "launch/lab/served/ngram_answers.h"
#include "launch/simulation/simulate.h"
#include "launch/simulation/stage.h"
#include "launch/simulation/workload_args.h"
#include "proto/base/error.h"
#include "proto/base/random.h"

namespace tpsim::launch {
namespace {

// A number from 0 to 1 of request `id` at its step `step`, the same in every process.
double draw(std::uint64_t id, std::uint64_t step) {
  return unit_interval(mix64((id << 32 | step) + kGoldenGamma));
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
      if (load.accept_together) length = std::floor((step + 1) * mean) - std::floor(step * mean);
      request.accept_lens.push_back(static_cast<std::uint32_t>(length));
      kept += request.accept_lens.back();
    }
  }
}

}  // namespace

ServableLoad::ServableLoad(const MeasuredLoad& load, const std::vector<std::string>& flags)
    : args_(read_run_flags(flags)),
      deployment_(std::move(resolve_deployments(args_, /*compare=*/false).at(0))) {
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
