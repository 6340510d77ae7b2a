// One simulated deployment with every option resolved: what the user said, and for the rest what SGLang would
// choose for this GPU, --tp, model and attention backend. This is the one place where options are chosen.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "launch/server_args.h"
#include "launch/speculation.h"
#include "proto/base/number_format.h"
#include "proto/hardware.pb.h"
#include "proto/report.pb.h"
#include "rank/model/expert_load.h"
#include "rank/model/fresh_kernels.h"
#include "rank/model/linear_attention_cost.h"
#include "rank/model/model_config.h"
#include "rank/model/parallel_layout.h"
#include "rank/model/pipeline.h"
#include "rank/model/prefill_graphs.h"
#include "rank/model/rank_model.h"
#include "rank/model/shard.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/mpi_session.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct Deployment {
  BackendPair backends;
  rank::ModelConfig model;
  proto::HardwareProfile hardware;
  NumberFormat kv_format = NumberFormat::kBf16;
  rank::ParallelLayout layout;
  std::vector<rank::LayerRange> stages;  // of the pipeline
  rank::ExpertLoad expert_load;
  attention::SparseOptions sparse;       // models with sparse attention only
  std::uint32_t sparse_token_bytes = 0;  // of one stored latent of theirs; 0: as kv_format has it
  scheduler::SchedulerConfig scheduler;  // of one data-parallel rank
  rank::PrefillGraphs prefill_graphs;
  attention::MlaOptions mla;
  std::uint32_t experts_in_use = 0;                     // as ModeledForward::Options
  std::optional<rank::FreshKernelRules> fresh_kernels;  // as there
  rank::LinearAttnBackends linear_attention;
  Speculation speculation;
  std::string draft_backend;  // attention backend of a draft model
  NumberFormat draft_kv_format = NumberFormat::kBf16;
  rank::MoeA2aBackend draft_moe_a2a = rank::MoeA2aBackend::kNone;
  bool draft_extend_captured = true;
  bool verifies_with_prefill = true;
  rank::DeploymentConfig ranks;
  std::vector<std::uint64_t> stage_tokens;  // that would fit each pipeline stage
  std::uint64_t state_slots = 0;            // requests with room for states of gated delta-net layers
  std::uint64_t verified_state_bytes = 0;   // of each GPU, for those behind tokens that are verified
  // Of a rank's window layers, where these have a pool of their own; of each pipeline stage.
  std::vector<std::uint64_t> swa_bytes_per_token;
  // The report's names, calibration and server_args; the rest is filled in by the run.
  proto::RunReport header;
  // What was chosen or changed from what the user might expect, one sentence each; and what was changed of
  // what was said.
  std::vector<std::string> notes;
  std::vector<std::string> warnings;

  // Other constants and coefficients of the same GPU from now on: prices change, what was chosen stays.
  void price_by(const proto::HardwareProfile& profile);
  // Name and page size of `backends`, for this GPU.
  std::unique_ptr<attention::AttentionBackend> make_backend() const;
  // What a rank of stage `pp_rank` has of the model, and its share of it.
  rank::ModelConfig model_of_stage(std::uint32_t pp_rank) const;
  rank::Shard shard_of(const rank::ModelConfig& stage_model, std::uint32_t tp_rank,
                       std::uint32_t pp_rank) const;
  // How the ranks share the draft model: as the target, or each data-parallel rank one of its own.
  rank::ParallelLayout draft_layout() const;
  // What prices the passes of a rank; without captured graphs, for what precedes them.
  std::unique_ptr<rank::RankModel> make_model(std::uint32_t tp_rank, std::uint32_t pp_rank,
                                              bool captured) const;
  rank::DraftMemory draft_memory(const ServerArgs& args) const;
  // The ranks of process `process` of `group`, ready to price batches.
  rank::LocalRanks local_ranks(const rank::ProcessGroup& group) const;
  // Of everything that decides prices; equal in every process.
  std::uint64_t configuration_hash() const;
};

// The deployment of `tpsim run`, or one for each entry of --attention-backends. Deterministic: every process
// comes to the same. Throws UserError for what cannot be carried out.
std::vector<Deployment> resolve_deployments(const ServerArgs& args, bool compare);

}  // namespace tpsim::launch
