#include "launch/deployment/deployment.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "attention/selection/registry.h"
#include "launch/deployment/host.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/config/shard.h"
#include "rank/llm/graph_capture.h"
#include "rank/llm/modeled_forward.h"
#include "rank/llm/speculative_forward.h"
#include "rank/llm/two_batch_overlap.h"
#include "rank/parallel/batch_wire.h"

namespace tpsim::launch {
namespace {

// Equal for equal messages, maps and all.
std::string bytes_of(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

}  // namespace

void Deployment::price_by(const proto::HardwareProfile& profile) {
  hardware = profile;
  scheduler.scheduler_step_seconds = profile.scheduler_step_seconds();
  derive_host_steps(scheduler, host, profile);
  if (!disaggregation.decode_side || disaggregation.decode_side->hardware.name() != profile.name()) return;
  auto decode = std::make_shared<Deployment>(*disaggregation.decode_side);
  decode->price_by(profile);
  disaggregation.decode_side = std::move(decode);
}

std::unique_ptr<attention::AttentionBackend> Deployment::make_backend() const {
  auto backend =
      attention::create_attention_backend(attention.backends.name(), hardware, scheduler.page_size);
  backend->set_verifies_with_prefill(speculation.verifies_with_prefill);
  backend->set_mla_options(attention.mla);
  backend->set_sparse_options(sparse.options);
  return backend;
}

std::unique_ptr<rank::RankModel> Deployment::make_model(std::uint32_t tp_rank, std::uint32_t pp_rank,
                                                        bool captured) const {
  const std::vector<std::uint32_t> sizes = captured ? scheduler.cuda_graph_bs : std::vector<std::uint32_t>{};
  const rank::ModelConfig of_stage = pipeline.model_of_stage(model, pp_rank);
  const rank::Shard shard = pipeline.shard_of(of_stage, parallel.layout, tp_rank, pp_rank);
  rank::ModeledForward::Options options{.kv_format = attention.kv_format,
                                        .sparse_token_bytes = sparse.token_bytes,
                                        .cuda_graph_bs = sizes,
                                        .prefill_graphs = graphs.prefill,
                                        .experts_in_use = weights.experts_in_use,
                                        .expert_load = parallel.expert_load,
                                        .mega_moe = parallel.mega_moe,
                                        .linear_attention = states.kernels,
                                        .tracks_states = scheduler.states.tracking_slots > 0,
                                        .fresh_kernels = captured ? fresh_kernels : std::nullopt,
                                        .host = host,
                                        .two_batches = parallel.two_batches.has_value()};
  if (pipeline.stages.size() > 1) {
    const rank::LayerRange& layers = pipeline.stages[pp_rank];
    const auto begin = model.layers.begin();
    options.expert_load = parallel.expert_load.of_layers(
        static_cast<std::size_t>(
            std::count_if(begin, begin + layers.first, [](const auto& layer) { return layer.moe; })),
        of_stage.moe.num_layers);
    const std::uint32_t next = layers.first + layers.count;
    options.hands_selection_over =
        model.is_sparse() && next < model.num_layers && !model.layers[next].indexer;
  }
  auto target =
      std::make_unique<rank::ModeledForward>(of_stage, hardware, shard, make_backend(), std::move(options));
  const scheduler::SpeculationConfig& config = speculation.config;
  if (parallel.two_batches)
    return std::make_unique<rank::TwoBatchForward>(std::move(target), hardware, of_stage.moe.num_layers,
                                                   *parallel.two_batches);
  if (!config.enabled()) return target;
  const rank::SpeculationShape shape = {.num_steps = config.num_steps,
                                        .topk = config.topk,
                                        .num_draft_tokens = config.num_draft_tokens,
                                        .tree_mask = config.topk > 1,
                                        .extend_captured = draft.extend_captured,
                                        .drafts_alone = speculation.drafts_alone(parallel.layout),
                                        .host = speculation.host};
  if (!speculation.draft)
    return std::make_unique<rank::SpeculativeForward>(std::move(target), nullptr, nullptr, shard, hardware,
                                                      shape);
  const rank::ModelConfig& drafts = speculation.draft->config;
  const rank::ParallelLayout& of_draft = draft.layout;
  const rank::Shard draft_shard = rank::make_shard(drafts, of_draft, shard.tp_rank % of_draft.tp_size);
  auto backend = attention::create_attention_backend(draft.backend, hardware, scheduler.page_size);
  backend->set_mla_options(attention.mla);
  backend->set_sparse_options(sparse.options);
  // The draft model's passes have the branches of a tree as requests of their own.
  std::vector<std::uint32_t> draft_sizes = sizes;
  for (const std::uint32_t size : sizes) draft_sizes.push_back(size * config.topk);
  std::sort(draft_sizes.begin(), draft_sizes.end());
  auto draft_forward = std::make_unique<rank::ModeledForward>(
      drafts, hardware, draft_shard, std::move(backend),
      rank::ModeledForward::Options{
          .kv_format = draft.kv_format,
          .sparse_token_bytes = drafts.is_sparse() ? sparse.token_bytes : 0,
          .cuda_graph_bs = draft_sizes,
          .prefill_graphs = graphs.prefill,
          .experts_in_use = drafts.moe.num_layers > 0 ? weights.experts_in_use : 0,
          .expert_load = drafts.moe.num_layers > 0 ? parallel.expert_load : rank::ExpertLoad{},
          .host = host});
  return std::make_unique<rank::SpeculativeForward>(std::move(target),
                                                    std::make_unique<rank::DraftModel>(*speculation.draft),
                                                    std::move(draft_forward), draft_shard, hardware, shape);
}

rank::LocalRanks Deployment::local_ranks(const rank::ProcessGroup& group) const {
  return rank::LocalRanks(ranks, group.first_rank(group.process), group.ranks_per_process(),
                          make_models(group));
}

std::vector<std::shared_ptr<rank::RankModel>> Deployment::make_models(const rank::ProcessGroup& group) const {
  // All shards of a stage have the same shapes (make_shard refuses others), so one model prices them all.
  std::vector<std::shared_ptr<rank::RankModel>> models;
  for (std::uint32_t stage = 0; stage < pipeline.stages.size(); ++stage)
    models.push_back(make_model(group.first_rank(group.process) % ranks.tp_size, stage, /*captured=*/true));
  return models;
}

void Deployment::describe_stages(proto::RunReport& report) const {
  if (pipeline.stages.size() == 1) return;
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const auto at = static_cast<int>(i);
    proto::PipelineStage& stage = at < report.pipeline_stages_size() ? *report.mutable_pipeline_stages(at)
                                                                     : *report.add_pipeline_stages();
    stage.set_pp_rank(static_cast<std::uint32_t>(i));
    stage.set_first_layer(pipeline.stages[i].first);
    stage.set_num_layers(pipeline.stages[i].count);
    stage.set_weight_bytes(ranks.ranks[i * ranks.tp_size].weight_bytes());
    stage.set_kv_bytes_per_token(ranks.stage_kv_bytes[i]);
    stage.set_kv_pool_tokens(memory.stages[i].tokens);
  }
}

void Deployment::describe_captures(proto::RunReport& report) const {
  const std::vector<std::uint32_t>& sizes = scheduler.cuda_graph_bs;
  report.set_cuda_graphs(static_cast<std::uint32_t>(sizes.size()));
  if (sizes.empty()) return;
  const proto::HostProfile::GraphCapture& costs = host.graph_capture();
  if (speculation.config.enabled()) {
    const auto eager = make_model(/*tp_rank=*/0, /*pp_rank=*/0, /*captured=*/false);
    const rank::GraphCapture capture =
        rank::graph_capture_cost(model, sizes, *eager, costs, speculation.config.num_draft_tokens);
    report.set_cuda_graph_capture_seconds(capture.seconds);
    report.set_cuda_graph_bytes(capture.bytes);
    return;
  }
  rank::ModeledForward::Options options;  // the warm-up passes run without graphs
  options.kv_format = attention.kv_format;
  options.host = host;
  // Pipeline stages capture at the same time.
  for (std::uint32_t stage = 0; stage < pipeline.stages.size(); ++stage) {
    const rank::ModelConfig of_stage = pipeline.model_of_stage(model, stage);
    // As tensor parallel ranks; data-parallel attention allows more of them than there are heads.
    const bool divides = of_stage.num_attention_heads % ranks.tp_size == 0;
    rank::Shard shard = divides ? rank::make_shard(of_stage, ranks.tp_size, 0)
                                : rank::make_shard(of_stage, parallel.layout, 0);
    shard.stage = pipeline.shard_of(of_stage, parallel.layout, 0, stage).stage;
    rank::ModeledForward eager(of_stage, hardware, shard, make_backend(), options);
    const rank::GraphCapture capture = rank::graph_capture_cost(of_stage, sizes, eager, costs);
    report.set_cuda_graph_capture_seconds(std::max(report.cuda_graph_capture_seconds(), capture.seconds));
    report.set_cuda_graph_bytes(std::max(report.cuda_graph_bytes(), std::uint64_t{capture.bytes}));
  }
}

std::uint64_t Deployment::configuration_hash() const {
  // A map of Protobuf has no order; one of std has.
  const std::map<std::string, std::string> sorted(header.server_args().begin(), header.server_args().end());
  std::string text;
  for (const auto& [key, value] : sorted) text.append(key).append("=").append(value).append("\n");
  for (const double factor : ranks.slowdown) text += format_real(factor) + " ";
  text += bytes_of(hardware) + bytes_of(host);
  return rank::configuration_hash(text);
}

void refuse_replicas(const Deployment& deployment, std::string_view command) {
  if (deployment.disaggregation.decode_side)
    throw_user_error(
        "--pd-disaggregation: `tpsim {}` has no pairs of servers; they are of `tpsim run`, `tpsim "
        "compare` and `tpsim serve`",
        command);
  if (deployment.router.replicas > 1)
    throw_user_error(
        "--dp-size {}: `tpsim {}` serves one replica; several are of `tpsim run` and `tpsim compare`",
        deployment.router.replicas, command);
}

}  // namespace tpsim::launch
