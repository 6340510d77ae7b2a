#include "launch/deployment/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

std::uint32_t attention_dp(const ServerArgs& args, const rank::ModelConfig& model) {
  const ParallelArgs& parallel = args.parallel;
  if (parallel.attn_dp_size && (parallel.enable_dp_attention || parallel.dp_size > 1))
    throw_user_error(
        "--attn-dp-size {}: says in one flag what --dp-size with --enable-dp-attention says in two; give one "
        "or the other",
        *parallel.attn_dp_size);
  std::uint32_t dp = parallel.attn_dp_size.value_or(parallel.enable_dp_attention ? parallel.dp_size : 1);
  if (dp > 1 && !model.facts.data_parallel_attention)
    throw_user_error("--enable-dp-attention: SGLang's {} cuts attention by --tp alone; leave it out",
                     model.architecture);
  if (dp > 1 && model.is_hybrid_linear())
    throw_user_error(
        "--enable-dp-attention: gated delta-net layers of {} are simulated with --tp alone; leave it out",
        model.name);
  return dp;
}

// Multiprocessors of DeepEP's kernels (get_deepep_config of layers/moe/token_dispatcher/deepep.py).
void check_deepep_config(const ParallelArgs& parallel, Notes& notes) {
  const std::string& given = parallel.deepep_config;
  if (given.empty()) return;
  nlohmann::json config = nlohmann::json::parse(given, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) {
    std::error_code error;
    if (!std::filesystem::exists(given, error))
      throw_user_error("--deepep-config {}: is neither JSON nor a file", given);
    config = nlohmann::json::parse(rank::small_file(given, "--deepep-config", "a configuration of deepep"),
                                   nullptr, /*allow_exceptions=*/false);
  }
  if (!config.is_object() || !config.contains("normal_dispatch") || !config.contains("normal_combine"))
    throw_user_error(
        "--deepep-config {}: must be an object with \"normal_dispatch\" and \"normal_combine\", each with "
        "its \"num_sms\"",
        given);
  if (parallel.moe_a2a_backend == "none")
    say(notes, "--deepep-config: changes nothing; SGLang reads it with --moe-a2a-backend deepep alone");
  else
    say(notes, "--deepep-config: was not measured; deepep's exchange is priced with its own settings");
}

// SGLang cuts the layers of DeepSeek V2 and V3 and of what is built of them, and those of some others, which
// are not simulated (batch_overlap/operations_strategy.py).
void check_two_batches(const ServerArgs& args, const rank::ModelConfig& model) {
  constexpr std::string_view kFlag = "--enable-two-batch-overlap";
  const std::string& a2a = args.parallel.moe_a2a_backend;
  if (a2a == "none" || a2a == "megamoe" || a2a == "flashinfer_megamoe")
    throw_user_error(
        "{}: is simulated where deepep brings tokens to their experts; add --moe-a2a-backend deepep", kFlag);
  if (!model.is_mla() || model.is_sparse() || model.is_hybrid_linear())
    throw_user_error("{}: layers of {} are simulated whole; leave it out", kFlag, model.architecture);
  if (args.numeric() || args.parallel.pp_size > 1)
    throw_user_error("{}: is simulated with --executor modeled and without pipeline stages; leave it out",
                     kFlag);
}

bool places_experts(const ParallelArgs& parallel) {
  return parallel.enable_eplb || parallel.init_expert_location != "trivial" ||
         parallel.ep_num_redundant_experts > 0;
}

void check_placement(const ServerArgs& args, const rank::ModelConfig& model,
                     const rank::ParallelLayout& layout, Notes& notes) {
  const ParallelArgs& parallel = args.parallel;
  if (!places_experts(parallel)) return;
  const std::string flag = parallel.enable_eplb                         ? "--enable-eplb"
                           : parallel.init_expert_location != "trivial" ? "--init-expert-location"
                                                                        : "--ep-num-redundant-experts";
  std::error_code error;
  if (parallel.init_expert_location != "trivial" &&
      !std::filesystem::is_regular_file(parallel.init_expert_location, error))
    throw_user_error(
        "--init-expert-location {}: must be trivial or a JSON file with recorded \"logical_count\", and "
        "there is no such file",
        parallel.init_expert_location);
  if (layout.ep_size == 1) throw_user_error("{}: needs --ep-size above 1", flag);
  const std::uint32_t experts = model.moe.num_experts + layout.redundant_experts;
  if (model.moe.num_layers == 0 || experts % layout.ep_size != 0)
    throw_user_error("{}: --ep-size {} does not divide the {} + {} experts of {}", flag, layout.ep_size,
                     model.moe.num_experts, layout.redundant_experts, model.name);
  if (args.numeric())
    throw_user_error("{}: is for --executor modeled, numeric ranks have their experts one after the other",
                     flag);
  if (parallel.ep_dispatch_algorithm == "static" && !layout.a2a())
    throw_user_error(
        "--ep-dispatch-algorithm static: SGLang has it with --moe-a2a-backend alone; use dynamic, or leave "
        "it out");
  if (parallel.enable_eplb)
    say(notes,
        "--enable-eplb: experts lie as its first round places them, from the start; rounds themselves "
        "{}are not priced",
        parallel.eplb_rebalance_num_iterations
            ? fmt::format("(--eplb-rebalance-num-iterations {}) ", *parallel.eplb_rebalance_num_iterations)
            : "");
}

rank::ExpertLoad resolve_expert_load(const ServerArgs& args, const rank::ModelConfig& model,
                                     const rank::ParallelLayout& layout) {
  const ParallelArgs& parallel = args.parallel;
  if (args.numeric() && parallel.expert_distribution)
    throw_user_error(
        "--expert-distribution {}: is for --executor modeled, numeric ranks send tokens where the router "
        "says",
        *parallel.expert_distribution);
  if (args.numeric()) return {};
  constexpr const char* kInit = "--init-expert-location";
  const bool recorded = parallel.init_expert_location != "trivial";
  rank::ExpertLoad load =
      parallel.expert_distribution || !recorded
          ? rank::ExpertLoad("--expert-distribution", parallel.distribution(), model, args.random_seed)
          : rank::ExpertLoad(kInit, parallel.init_expert_location, model, args.random_seed);
  if (!places_experts(parallel)) return load;
  const rank::ExpertLoad as_recorded =
      recorded && !parallel.enable_eplb
          ? rank::ExpertLoad(kInit, parallel.init_expert_location, model, args.random_seed)
          : load;
  load.place(model, parallel.enable_eplb || recorded ? &as_recorded : nullptr,
             parallel.ep_num_redundant_experts, layout.ep_size);
  return load;
}

}  // namespace

Parallel resolve_parallel(const ServerArgs& args, const rank::ModelConfig& model) {
  const ParallelArgs& parallel = args.parallel;
  Parallel out;
  rank::ParallelLayout& layout = out.layout;
  layout.tp_size = args.tp_size;
  layout.ep_size = parallel.ep_size;
  layout.dp_size = attention_dp(args, model);
  const std::string& a2a = parallel.moe_a2a_backend;
  if (a2a != "none") {
    layout.moe_a2a = rank::MoeA2aBackend::kDeepEp;
    if (model.moe.num_layers > 0 && !model.facts.deepep)
      throw_user_error("--moe-a2a-backend {}: SGLang's {} has no such path; leave it out", a2a,
                       model.architecture);
    if (layout.ep_size != layout.tp_size)
      say(out.notes, "--ep-size: {} like --tp, as --moe-a2a-backend {} demands", args.tp_size, a2a);
    out.mega_moe = a2a == "megamoe";
    if (out.mega_moe)
      say(out.notes,
          "--moe-a2a-backend megamoe: experts in mxfp4 are priced by its own kernel where the GPU's profile "
          "has it, others and their exchange as deepep's");
    else if (a2a != "deepep")
      say(out.notes, "--moe-a2a-backend {}: was not measured; its exchange is priced as deepep's", a2a);
    layout.ep_size = layout.tp_size;
    layout.deepep_mode = parallel.deepep_mode == "normal"        ? rank::DeepEpMode::kNormal
                         : parallel.deepep_mode == "low_latency" ? rank::DeepEpMode::kLowLatency
                                                                 : rank::DeepEpMode::kAuto;
    check_deepep_config(parallel, out.notes);
  } else if (parallel.deepep_mode != "auto") {
    throw_user_error("--deepep-mode {}: is for --moe-a2a-backend deepep; leave it out", parallel.deepep_mode);
  } else {
    check_deepep_config(parallel, out.notes);
  }
  if (const auto dense = parallel.moe_dense_tp_size) {
    if (*dense != 1 && *dense != args.tp_size)
      throw_user_error("--moe-dense-tp-size {}: must be 1, or --tp {}", *dense, args.tp_size);
    layout.moe_dense_tp1 = *dense == 1 && args.tp_size > 1;
    if (layout.moe_dense_tp1 && !model.facts.data_parallel_attention)
      throw_user_error("--moe-dense-tp-size 1: SGLang's {} cuts its MLPs by --tp alone; leave it out",
                       model.architecture);
  }
  if (parallel.enable_dp_lm_head && layout.dp_size == 1)
    throw_user_error("--enable-dp-lm-head: needs --dp-size above 1 with --enable-dp-attention");
  layout.dp_lm_head = parallel.enable_dp_lm_head;
  layout.redundant_experts = parallel.ep_num_redundant_experts;
  check_placement(args, model, layout, out.notes);
  if (parallel.two_batch_overlap) {
    check_two_batches(args, model);
    out.two_batches = parallel.tbo_threshold;
  }
  out.expert_load = resolve_expert_load(args, model, layout);
  return out;
}

Pipeline resolve_pipeline(const ServerArgs& args, const rank::ModelConfig& model,
                          const rank::ParallelLayout& layout, bool speculates, Switches switches) {
  const ParallelArgs& parallel = args.parallel;
  if (parallel.two_batch_overlap && speculates)
    throw_user_error(
        "--enable-two-batch-overlap: with speculative decoding it is not simulated; leave "
        "--speculative-algorithm out");
  Pipeline out{.stages = {{0, model.num_layers}}, .config = {}, .switches = switches, .notes = {}};
  scheduler::PipelineConfig& pipeline = out.config;
  pipeline.max_micro_batch_size = parallel.pp_max_micro_batch_size;
  if (parallel.pp_size == 1) {
    if (parallel.pp_async_batch_depth > 0)
      throw_user_error("--pp-async-batch-depth {}: needs --pp-size above 1", parallel.pp_async_batch_depth);
    return out;
  }
  if (args.numeric())
    throw_user_error(
        "--pp-size {}: pipeline stages are priced, not computed; use --executor modeled, or --tp",
        parallel.pp_size);
  if (parallel.data_parallel_attention())
    throw_user_error(
        "--pp-size {}: data-parallel attention in pipeline stages is not simulated; leave "
        "--enable-dp-attention out",
        parallel.pp_size);
  if (speculates)
    throw_user_error(
        "--pp-size {}: speculative decoding in pipeline stages is not simulated (SGLang has it on prefill "
        "servers, and from 0.5.23 where SGLANG_ENABLE_PP_SPEC is set); leave --speculative-algorithm out",
        parallel.pp_size);
  rank::check_pipeline(model);
  pipeline.size = parallel.pp_size;
  pipeline.async_batch_depth = parallel.pp_async_batch_depth;
  if (switches.overlap)
    say(out.notes,
        "--disable-overlap-schedule: is set, for SGLang does not overlap pipeline stages' scheduling");
  out.switches.overlap = false;
  if (layout.stages_of_node == 0)
    say(out.notes,
        "--pp-size: stages are taken to be joined as the GPUs of one host are; between hosts, handing over "
        "is slower");
  out.stages = rank::pipeline_layers(model.num_layers, parallel.pp_size, parallel.pp_layer_partition);
  rank::check_deepstack(model, out.stages);
  return out;
}

rank::ModelConfig Pipeline::model_of_stage(const rank::ModelConfig& model, std::uint32_t pp_rank) const {
  return stages.size() == 1 ? model : rank::stage_model(model, stages[pp_rank]);
}

rank::Shard Pipeline::shard_of(const rank::ModelConfig& stage_model, const rank::ParallelLayout& layout,
                               std::uint32_t tp_rank, std::uint32_t pp_rank) const {
  return rank::stage_shard(stage_model, layout, tp_rank, pp_rank, static_cast<std::uint32_t>(stages.size()));
}

void write_parallel(const ParallelArgs& parallel, const Parallel& chosen, const Pipeline& pipeline,
                    const rank::ModelConfig& model, std::uint32_t max_running_requests, Rows& out) {
  const rank::ParallelLayout& layout = chosen.layout;
  if (layout.nodes > 1) out["nnodes"] = std::to_string(layout.nodes);
  if (layout.ep_size > 1) out["ep_size"] = std::to_string(layout.ep_size);
  if (parallel.pp_size > 1) {
    out["pp_size"] = std::to_string(parallel.pp_size);
    out["pp_async_batch_depth"] = std::to_string(parallel.pp_async_batch_depth);
    if (!parallel.pp_layer_partition.empty()) out["pp_layer_partition"] = parallel.pp_layer_partition;
  }
  if (layout.dp_size > 1) {
    out["dp_size"] = std::to_string(layout.dp_size);
    out["enable_dp_attention"] = "true";
    out["enable_dp_lm_head"] = layout.dp_lm_head ? "true" : "false";
    out["load_balance_method"] = to_string(parallel.load_balance);
  }
  if (layout.moe_dense_tp1) out["moe_dense_tp_size"] = "1";
  if (layout.a2a()) {
    out["moe_a2a_backend"] = parallel.moe_a2a_backend;
    out["deepep_mode"] = parallel.deepep_mode;
  }
  if (chosen.two_batches) {
    out["enable_two_batch_overlap"] = "true";
    out["tbo_token_distribution_threshold"] = format_real(*chosen.two_batches);
  }
  if (chosen.expert_load.uneven(layout.ep_size)) {
    out["expert_distribution"] = parallel.distribution();
    out["expert_imbalance"] = format_real(chosen.expert_load.imbalance(model.moe, layout.ep_size));
  }
  if (parallel.enable_eplb) out["enable_eplb"] = "true";
  if (layout.redundant_experts > 0)
    out["ep_num_redundant_experts"] = std::to_string(layout.redundant_experts);
  if (pipeline.config.staged() || pipeline.config.max_micro_batch_size)
    out["pp_max_micro_batch_size"] =
        std::to_string(pipeline.config.requests_of_micro_batch(max_running_requests));
}

}  // namespace tpsim::launch
