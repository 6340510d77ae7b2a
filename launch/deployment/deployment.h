// One simulated deployment with every option resolved (launch/deployment/resolve.h), and the models that
// price it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "launch/deployment/attention.h"
#include "launch/deployment/batches.h"
#include "launch/deployment/disaggregation.h"
#include "launch/deployment/draft.h"
#include "launch/deployment/hicache.h"
#include "launch/deployment/kernels.h"
#include "launch/deployment/memory.h"
#include "launch/deployment/model.h"
#include "launch/deployment/parallel.h"
#include "launch/deployment/router.h"
#include "launch/deployment/speculation.h"
#include "launch/deployment/states.h"
#include "proto/hardware.pb.h"
#include "proto/host.pb.h"
#include "proto/report.pb.h"
#include "rank/config/model_config.h"
#include "rank/llm/fresh_kernels.h"
#include "rank/llm/rank_model.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/mpi_session.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct Deployment {
  rank::ModelConfig model;  // as it is served
  proto::HardwareProfile hardware;
  proto::HostProfile host;  // that the GPUs stand in; its name says whose constants these are
  // One value a subject, each chosen with what stands before it.
  Weights weights;
  Speculation speculation;
  AttentionChoice attention;
  Parallel parallel;
  RouterChoice router;
  Disaggregation disaggregation;
  KernelChoice kernels;
  SparseAttention sparse;  // models with sparse attention only
  Draft draft;             // where a model drafts
  States states;           // models with gated delta-net layers only
  Pipeline pipeline;
  Graphs graphs;
  Memory memory;
  HiCacheChoice hicache;
  std::optional<rank::FreshKernelRules> fresh_kernels;  // as ModeledForward::Options
  // What these come to for the scheduler of one data-parallel rank, and for the ranks.
  scheduler::SchedulerConfig scheduler;
  rank::DeploymentConfig ranks;
  // The report's names, calibration and server_args; the rest is filled in by the run.
  proto::RunReport header;
  // What was chosen or changed from what the user might expect, one sentence each; and what was changed of
  // what was said.
  Notes notes;
  Notes warnings;

  // Other constants and coefficients of the same GPU from now on: prices change, what was chosen stays.
  void price_by(const proto::HardwareProfile& profile);
  // Name and page size of `backends`, for this GPU.
  std::unique_ptr<attention::AttentionBackend> make_backend() const;
  // What prices the passes of a rank; without captured graphs, for what precedes them.
  std::unique_ptr<rank::RankModel> make_model(std::uint32_t tp_rank, std::uint32_t pp_rank,
                                              bool captured) const;
  // Servers side by side.
  std::uint32_t replicas() const {
    return disaggregation.decode_side ? disaggregation.prefill + disaggregation.decode : router.replicas;
  }
  // What prices the passes of the ranks of process `process` of `group`: one model for each stage.
  std::vector<std::shared_ptr<rank::RankModel>> make_models(const rank::ProcessGroup& group) const;
  // These ranks, ready to price batches.
  rank::LocalRanks local_ranks(const rank::ProcessGroup& group) const;
  // Puts into `report` what the pipeline stages have and leave room for; of one stage nothing.
  void describe_stages(proto::RunReport& report) const;
  // Puts into `report` what capturing decode in CUDA graphs costs before the server is ready; priced runs.
  void describe_captures(proto::RunReport& report) const;
  // Of everything that decides prices; equal in every process.
  std::uint64_t configuration_hash() const;
};

// For commands that serve one replica: throws UserError where there are several.
void refuse_replicas(const Deployment& deployment, std::string_view command);

}  // namespace tpsim::launch
