// What a resolved deployment is made of: its backends, its ranks' models, and what prices their passes.
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "attention/registry.h"
#include "launch/deployment.h"
#include "proto/base/text.h"
#include "rank/model/modeled_forward.h"
#include "rank/model/speculative_forward.h"
#include "rank/parallel/batch_wire.h"

namespace tpsim::launch {

std::unique_ptr<attention::AttentionBackend> Deployment::make_backend() const {
  auto backend = attention::create_attention_backend(backends.name(), hardware, scheduler.page_size);
  backend->set_verifies_with_prefill(verifies_with_prefill);
  backend->set_mla_options(mla);
  backend->set_sparse_options(sparse);
  return backend;
}

rank::ModelConfig Deployment::model_of_stage(std::uint32_t pp_rank) const {
  return stages.size() == 1 ? model : rank::stage_model(model, stages[pp_rank]);
}

rank::Shard Deployment::shard_of(const rank::ModelConfig& stage_model, std::uint32_t tp_rank,
                                 std::uint32_t pp_rank) const {
  return rank::stage_shard(stage_model, layout, tp_rank, pp_rank, static_cast<std::uint32_t>(stages.size()));
}

std::unique_ptr<rank::RankModel> Deployment::make_model(std::uint32_t tp_rank, std::uint32_t pp_rank,
                                                        bool captured) const {
  const std::vector<std::uint32_t> sizes = captured ? scheduler.cuda_graph_bs : std::vector<std::uint32_t>{};
  const rank::ModelConfig of_stage = model_of_stage(pp_rank);
  const rank::Shard shard = shard_of(of_stage, tp_rank, pp_rank);
  rank::ModeledForward::Options options{.kv_format = kv_format,
                                        .sparse_token_bytes = sparse_token_bytes,
                                        .cuda_graph_bs = sizes,
                                        .prefill_graphs = prefill_graphs,
                                        .experts_in_use = experts_in_use,
                                        .expert_load = expert_load,
                                        .linear_attention = linear_attention,
                                        .tracks_states = scheduler.states.tracking_slots > 0,
                                        .fresh_kernels = captured ? fresh_kernels : std::nullopt};
  if (stages.size() > 1) {
    const rank::LayerRange& layers = stages[pp_rank];
    const auto begin = model.layers.begin();
    options.expert_load =
        expert_load.of_layers(static_cast<std::size_t>(std::count_if(
                                  begin, begin + layers.first, [](const auto& layer) { return layer.moe; })),
                              of_stage.moe.num_layers);
    const std::uint32_t next = layers.first + layers.count;
    options.hands_selection_over =
        model.is_sparse() && next < model.num_layers && !model.layers[next].indexer;
  }
  auto target =
      std::make_unique<rank::ModeledForward>(of_stage, hardware, shard, make_backend(), std::move(options));
  const scheduler::SpeculationConfig& config = speculation.config;
  if (!config.enabled()) return target;
  const rank::SpeculationShape shape = {.num_steps = config.num_steps,
                                        .topk = config.topk,
                                        .num_draft_tokens = config.num_draft_tokens,
                                        .tree_mask = config.topk > 1,
                                        .extend_captured = draft_extend_captured,
                                        .drafts_alone = speculation.drafts_alone(layout),
                                        .host = speculation.host};
  if (!speculation.draft)
    return std::make_unique<rank::SpeculativeForward>(std::move(target), nullptr, nullptr, shard, hardware,
                                                      shape);
  const rank::ModelConfig& drafts = speculation.draft->config;
  const rank::ParallelLayout of_draft = draft_layout();
  const rank::Shard draft_shard = rank::make_shard(drafts, of_draft, shard.tp_rank % of_draft.tp_size);
  auto backend = attention::create_attention_backend(draft_backend, hardware, scheduler.page_size);
  backend->set_mla_options(mla);
  backend->set_sparse_options(sparse);
  // The draft model's passes have the branches of a tree as requests of their own.
  std::vector<std::uint32_t> draft_sizes = sizes;
  for (const std::uint32_t size : sizes) draft_sizes.push_back(size * config.topk);
  std::sort(draft_sizes.begin(), draft_sizes.end());
  auto draft_forward = std::make_unique<rank::ModeledForward>(
      drafts, hardware, draft_shard, std::move(backend),
      rank::ModeledForward::Options{
          .kv_format = draft_kv_format,
          .sparse_token_bytes = drafts.is_sparse() ? sparse_token_bytes : 0,
          .cuda_graph_bs = draft_sizes,
          .prefill_graphs = prefill_graphs,
          .experts_in_use = drafts.moe.num_layers > 0 ? experts_in_use : 0,
          .expert_load = drafts.moe.num_layers > 0 ? expert_load : rank::ExpertLoad{}});
  return std::make_unique<rank::SpeculativeForward>(std::move(target),
                                                    std::make_unique<rank::DraftModel>(*speculation.draft),
                                                    std::move(draft_forward), draft_shard, hardware, shape);
}

rank::LocalRanks Deployment::local_ranks(const rank::ProcessGroup& group) const {
  // All shards of a stage have the same shapes (make_shard refuses others), so one model prices them all.
  std::vector<std::unique_ptr<rank::RankModel>> models;
  for (std::uint32_t stage = 0; stage < stages.size(); ++stage)
    models.push_back(make_model(group.first_rank(group.process) % ranks.tp_size, stage, /*captured=*/true));
  return rank::LocalRanks(ranks, group.first_rank(group.process), group.ranks_per_process(),
                          std::move(models));
}

rank::DraftMemory Deployment::draft_memory(const ServerArgs& args) const {
  if (!speculation.draft) return {};
  return launch::draft_memory(args, speculation, model,
                              rank::make_shard(speculation.draft->config, draft_layout(), 0));
}

rank::ParallelLayout Deployment::draft_layout() const {
  rank::ParallelLayout of_draft = layout;
  of_draft.moe_a2a = draft_moe_a2a;
  if (!speculation.drafts_alone(layout)) return of_draft;
  of_draft = {};
  of_draft.tp_size = layout.attn_tp_size();
  return of_draft;
}

std::uint64_t Deployment::configuration_hash() const {
  // A map of Protobuf has no order; one of std has.
  const std::map<std::string, std::string> sorted(header.server_args().begin(), header.server_args().end());
  std::string text;
  for (const auto& [key, value] : sorted) text.append(key).append("=").append(value).append("\n");
  for (const double factor : ranks.slowdown) text += format_real(factor) + " ";
  text += hardware.ShortDebugString();
  return rank::configuration_hash(text);
}

}  // namespace tpsim::launch
