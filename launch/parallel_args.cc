#include "launch/parallel_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "launch/deployment.h"
#include "launch/server_args.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

// Of the model classes of SGLang 0.5.12 and 0.5.23, those whose layers gather and scatter tokens
// (LayerCommunicator in models/*.py); the others cut attention by --tp whatever the flags say.
bool has_data_parallel_attention(const std::string& architecture) {
  constexpr std::array<std::string_view, 9> kPrefixes = {"Deepseek", "Glm4Moe", "GlmMoe", "Qwen2Moe", "Qwen3",
                                                         "GptOss",   "Llama4",  "Kimi",   "MiniMaxM2"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return architecture.starts_with(prefix); });
}

// Those with a forward_deepep().
bool has_deepep(const std::string& architecture) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"Deepseek", "Glm4Moe", "GlmMoe",
                                                         "Qwen2Moe", "Qwen3",   "Kimi"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return architecture.starts_with(prefix); });
}

std::uint32_t attention_dp(const ServerArgs& args, const rank::ModelConfig& model) {
  const ParallelArgs& parallel = args.parallel;
  if (parallel.attn_dp_size && (parallel.enable_dp_attention || parallel.dp_size > 1))
    throw_user_error(
        "--attn-dp-size {}: says in one flag what --dp-size with --enable-dp-attention says in two; give one "
        "or "
        "the other",
        *parallel.attn_dp_size);
  std::uint32_t dp = parallel.attn_dp_size.value_or(parallel.enable_dp_attention ? parallel.dp_size : 1);
  if (!parallel.enable_dp_attention && parallel.dp_size > 1)
    throw_user_error(
        "--dp-size {}: replicas that share nothing are not simulated together; give --enable-dp-attention, "
        "or "
        "run one replica with its share of the requests",
        parallel.dp_size);
  if (dp > 1 && !has_data_parallel_attention(model.architecture))
    throw_user_error("--enable-dp-attention: SGLang's {} cuts attention by --tp alone; leave it out",
                     model.architecture);
  if (dp > 1 && model.is_hybrid_linear())
    throw_user_error(
        "--enable-dp-attention: gated delta-net layers of {} are simulated with --tp alone; leave it "
        "out",
        model.name);
  return dp;
}

}  // namespace

rank::ParallelLayout resolve_layout(const ServerArgs& args, const rank::ModelConfig& model,
                                    std::vector<std::string>& notes) {
  const ParallelArgs& parallel = args.parallel;
  rank::ParallelLayout layout;
  layout.tp_size = args.tp_size;
  layout.ep_size = args.ep_size;
  layout.dp_size = attention_dp(args, model);
  if (parallel.moe_a2a_backend == "deepep") {
    layout.moe_a2a = rank::MoeA2aBackend::kDeepEp;
    if (model.moe.num_layers > 0 && !has_deepep(model.architecture))
      throw_user_error("--moe-a2a-backend deepep: SGLang's {} has no such path; leave it out",
                       model.architecture);
    if (layout.ep_size != layout.tp_size)
      notes.push_back(
          fmt::format("--ep-size: {} like --tp, as --moe-a2a-backend deepep demands", args.tp_size));
    layout.ep_size = layout.tp_size;
    layout.deepep_mode = parallel.deepep_mode == "normal"        ? rank::DeepEpMode::kNormal
                         : parallel.deepep_mode == "low_latency" ? rank::DeepEpMode::kLowLatency
                                                                 : rank::DeepEpMode::kAuto;
  } else if (parallel.deepep_mode != "auto") {
    throw_user_error("--deepep-mode {}: is for --moe-a2a-backend deepep; leave it out", parallel.deepep_mode);
  }
  if (const auto dense = parallel.moe_dense_tp_size) {
    if (*dense != 1 && *dense != args.tp_size)
      throw_user_error("--moe-dense-tp-size {}: must be 1, or --tp {}", *dense, args.tp_size);
    layout.moe_dense_tp1 = *dense == 1 && args.tp_size > 1;
    if (layout.moe_dense_tp1 && !has_data_parallel_attention(model.architecture))
      throw_user_error("--moe-dense-tp-size 1: SGLang's {} cuts its MLPs by --tp alone; leave it out",
                       model.architecture);
  }
  if (parallel.enable_dp_lm_head && layout.dp_size == 1)
    throw_user_error("--enable-dp-lm-head: needs --dp-size above 1 with --enable-dp-attention");
  layout.dp_lm_head = parallel.enable_dp_lm_head;
  return layout;
}

std::vector<rank::LayerRange> resolve_pipeline(const ServerArgs& args, const rank::ModelConfig& model,
                                               scheduler::SchedulerConfig& config,
                                               std::vector<std::string>& notes) {
  const ParallelArgs& parallel = args.parallel;
  scheduler::PipelineConfig& pipeline = config.pipeline;
  pipeline.max_micro_batch_size = parallel.pp_max_micro_batch_size;
  if (parallel.pp_size == 1) {
    if (parallel.pp_async_batch_depth > 0)
      throw_user_error("--pp-async-batch-depth {}: needs --pp-size above 1", parallel.pp_async_batch_depth);
    return {{0, model.num_layers}};
  }
  if (args.numeric())
    throw_user_error(
        "--pp-size {}: pipeline stages are priced, not computed; use --executor modeled, or --tp",
        parallel.pp_size);
  if (parallel.enable_dp_attention || parallel.attn_dp_size.value_or(1) > 1)
    throw_user_error(
        "--pp-size {}: data-parallel attention in pipeline stages is not simulated; leave "
        "--enable-dp-attention out",
        parallel.pp_size);
  if (config.speculation.enabled())
    throw_user_error(
        "--pp-size {}: speculative decoding in pipeline stages is not simulated (SGLang has it on prefill "
        "servers, and from 0.5.23 where SGLANG_ENABLE_PP_SPEC is set); leave --speculative-algorithm out",
        parallel.pp_size);
  rank::check_pipeline(model);
  pipeline.size = parallel.pp_size;
  pipeline.async_batch_depth = parallel.pp_async_batch_depth;
  if (!config.disable_overlap_schedule)
    notes.emplace_back(
        "--disable-overlap-schedule: is set, for SGLang does not overlap pipeline stages' scheduling");
  config.disable_overlap_schedule = true;
  notes.emplace_back(
      "--pp-size: stages are taken to be joined as the GPUs of one host are; between hosts, handing over is "
      "slower");
  std::vector<rank::LayerRange> stages =
      rank::pipeline_layers(model.num_layers, parallel.pp_size, parallel.pp_layer_partition);
  rank::check_deepstack(model, stages);
  return stages;
}

void describe_stages(const Deployment& deployment, proto::RunReport& report) {
  if (deployment.stages.size() == 1) return;
  for (std::size_t i = 0; i < deployment.stages.size(); ++i) {
    const auto at = static_cast<int>(i);
    proto::PipelineStage& stage = at < report.pipeline_stages_size() ? *report.mutable_pipeline_stages(at)
                                                                     : *report.add_pipeline_stages();
    stage.set_pp_rank(static_cast<std::uint32_t>(i));
    stage.set_first_layer(deployment.stages[i].first);
    stage.set_num_layers(deployment.stages[i].count);
    stage.set_weight_bytes(deployment.ranks.ranks[i * deployment.ranks.tp_size].weight_bytes());
    stage.set_kv_bytes_per_token(deployment.ranks.stage_kv_bytes[i]);
    stage.set_kv_pool_tokens(deployment.stage_tokens[i]);
  }
}

rank::ExpertLoad resolve_expert_load(const ServerArgs& args, const rank::ModelConfig& model) {
  const std::string spec = args.parallel.expert_distribution.value_or("uniform");
  if (spec == "uniform") return {};
  if (args.numeric())
    throw_user_error(
        "--expert-distribution {}: is for --executor modeled, numeric ranks send tokens where the router "
        "says",
        spec);
  return {"--expert-distribution", spec, model, args.random_seed};
}

void apply_data_parallelism(const ServerArgs& args, const rank::ParallelLayout& layout,
                            scheduler::SchedulerConfig& config) {
  scheduler::DataParallelConfig& dp = config.data_parallel;
  dp.size = layout.dp_size;
  dp.gathers_mlp = layout.gathers_mlp();
  dp.load_balance = args.parallel.load_balance;
  if (layout.dp_size == 1) return;
  constexpr double kConservativeness = 0.3;
  config.schedule_conservativeness *= kConservativeness;
  if (config.chunked_prefill_size == 0) return;
  const std::uint32_t whole = config.chunked_prefill_size;
  config.chunked_prefill_size /= layout.dp_size;
  if (config.chunked_prefill_size == 0 || config.chunked_prefill_size % config.page_size != 0)
    throw_user_error(
        "--chunked-prefill-size {}: each of --dp-size {} data-parallel ranks has {} tokens of it, which must "
        "be "
        "a multiple of --page-size {}",
        whole, layout.dp_size, config.chunked_prefill_size, config.page_size);
}

void align_captured_sizes(const rank::ParallelLayout& layout, scheduler::SchedulerConfig& config) {
  const bool splits_tokens = layout.a2a() || layout.moe_dense_tp1 || layout.gathers_mlp();
  const std::uint32_t unit = splits_tokens ? layout.attn_tp_size() : 1;
  if (unit == 1 || config.cuda_graph_bs.empty()) return;
  std::erase_if(config.cuda_graph_bs, [unit](std::uint32_t bs) { return bs % unit != 0; });
  if (config.cuda_graph_bs.empty())
    throw_user_error(
        "--cuda-graph-bs: must have a size that is a multiple of the {} GPUs of a data-parallel rank", unit);
}

void write_parallel_args(const ServerArgs& args, const rank::ParallelLayout& layout,
                         const rank::ExpertLoad& load, const rank::ModelConfig& model,
                         proto::RunReport& header) {
  auto& out = *header.mutable_server_args();
  if (layout.ep_size > 1) out["ep_size"] = std::to_string(layout.ep_size);
  const ParallelArgs& parallel = args.parallel;
  if (parallel.pp_size > 1) {
    out["pp_size"] = std::to_string(parallel.pp_size);
    out["pp_async_batch_depth"] = std::to_string(parallel.pp_async_batch_depth);
    if (!parallel.pp_layer_partition.empty()) out["pp_layer_partition"] = parallel.pp_layer_partition;
  }
  if (layout.dp_size > 1) {
    out["dp_size"] = std::to_string(layout.dp_size);
    out["enable_dp_attention"] = "true";
    out["enable_dp_lm_head"] = layout.dp_lm_head ? "true" : "false";
    out["load_balance_method"] = to_string(args.parallel.load_balance);
  }
  if (layout.moe_dense_tp1) out["moe_dense_tp_size"] = "1";
  if (layout.a2a()) {
    out["moe_a2a_backend"] = "deepep";
    out["deepep_mode"] = args.parallel.deepep_mode;
  }
  if (!load.uniform()) {
    out["expert_distribution"] = args.parallel.expert_distribution.value_or("uniform");
    out["expert_imbalance"] = format_real(load.imbalance(model.moe, layout.ep_size));
  }
}

}  // namespace tpsim::launch
