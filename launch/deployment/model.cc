#include "launch/deployment/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <system_error>

#include "proto/base/error.h"
#include "rank/llm/modeled_forward.h"

namespace tpsim::launch {
namespace {

// A folder with a config.json and no weights that SGLang's loaders would read.
bool holds_no_weights(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator files(path, error);
  if (error) return false;
  return std::none_of(begin(files), end(files), [](const std::filesystem::directory_entry& file) {
    const std::filesystem::path kind = file.path().extension();
    return kind == ".safetensors" || kind == ".bin" || kind == ".pt" || kind == ".gguf";
  });
}

// Which kernels choose the experts of every token (biased_grouped_topk_gpu). Of experts in groups
// FlashInfer's fused_topk_deepseek or moe_fused_gate does, the former without the shared ones, which are
// appended; Kimi-K2's gate takes its 384. Of others one kernel takes 512 and eight of a token at most, later
// more, but until then none beside fused shared experts: torch.compile's program does.
void choose_router(const scheduler::ReleaseRules& rules, rank::ModelConfig& model) {
  const rank::MoeConfig& moe = model.moe;
  if (!model.facts.biased_grouped_topk || moe.num_layers == 0) return;
  if (moe.num_groups > 1) {
    model.facts.appends_shared_experts =
        rules.one_kernel_routes_ungrouped && std::has_single_bit(moe.num_experts);
    return;
  }
  if (moe.num_experts == 384) return;
  const auto compiled = [&](std::uint32_t shared) {
    const bool many = moe.num_experts > 512 || moe.top_k + shared > 8;
    if (many) return !rules.one_kernel_routes_many;
    return shared > 0 || !rules.one_kernel_routes_ungrouped;
  };
  model.facts.compiled_router = compiled(0);
  model.facts.compiled_router_beside_shared = compiled(moe.num_fused_shared_experts);
}

// Where dummy weights decide which experts the tokens visit. SGLang serves a folder without weights with
// --load-format dummy only, so that is what such a folder stands for unless the user says otherwise.
void resolve_routing(const ServerArgs& args, const rank::ModelConfig& model, Weights& weights) {
  if (args.numeric() || args.parallel.expert_distribution) return;
  if (!rank::dummy_weights_share_experts(model, args.sglang_release.rules.deepseek_routes_in_fp32)) return;
  const std::uint32_t top_k = model.moe.top_k;
  if (!args.load_format && holds_no_weights(args.model_path)) {
    say(weights.warnings,
        "--model-path {}: has no weights: priced as a server with --load-format dummy, whose "
        "router sends every token to the same {} experts; --load-format auto prices even routing",
        args.model_path, top_k);
  } else if (!args.dummy_weights()) {
    return;
  }
  weights.experts_in_use = top_k;
}

}  // namespace

rank::ModelConfig load_model(const ServerArgs& args) {
  rank::ModelConfig config = rank::load_model_config(args.model_path);
  if (!args.sglang_release.rules.trtllm_runs_more_experts)
    config.facts.trtllm_experts = config.facts.trtllm_experts == rank::TrtllmExperts::k16BitFp8OrNvfp4
                                      ? rank::TrtllmExperts::kFp8OrNvfp4
                                      : rank::TrtllmExperts::kNone;
  choose_router(args.sglang_release.rules, config);
  config.facts.few_mla_splits = !args.sglang_release.rules.mla_splits_fill_device;
  config.facts.residual_norm_kernels = args.sglang_release.rules.gemma3_norms_are_kernels;
  config.facts.small_kernels_overlap = args.sglang_release.rules.small_kernels_overlap;
  config.facts.tunes_scans = args.sglang_release.rules.tunes_scans;
  config.facts.compiles_rotation = args.sglang_release.rules.prefill_pieces_are_breakable;
  if (config.facts.fp32_router > args.sglang_release.rules.fp32_routers) config.facts.fp32_router = 0;
  if (config.facts.second_stream > args.sglang_release.rules.second_streams) config.facts.second_stream = 0;
  if (args.disable_shared_experts_fusion) config.moe.num_fused_shared_experts = 0;
  return config;
}

std::uint32_t resolve_context_length(const ModelArgs& args, const rank::ModelConfig& model) {
  if (!args.context_length) return model.context_length;
  if (*args.context_length > model.context_length)
    throw_user_error("--context-length {}: {} was made for at most {} tokens", *args.context_length,
                     model.name, model.context_length);
  return *args.context_length;
}

Weights resolve_weights(const ServerArgs& args, const proto::HardwareProfile& hardware,
                        const rank::ModelConfig& model) {
  Weights weights;
  weights.quantization = rank::resolve_quantization(model.quantization, args.quantization);
  if (args.numeric() && weights.quantization.online)
    throw_user_error(
        "--quantization {}: --executor numeric computes with a checkpoint's own weights; leave it out",
        args.quantization);
  if (!args.numeric() && weights.quantization.quantized())
    rank::check_capability(weights.quantization, hardware);
  resolve_routing(args, model, weights);
  return weights;
}

void write_model(const ModelArgs& args, const proto::HardwareProfile& hardware,
                 const rank::ModelConfig& model, const Weights& weights, std::uint32_t context_length,
                 Rows& rows) {
  rows["model_path"] = args.model_path;
  rows["hardware"] = hardware.name();
  rows["tp_size"] = std::to_string(args.tp_size);
  rows["executor"] = args.executor;
  rows["context_length"] = std::to_string(context_length);
  rows["rank_slowdown"] = fmt::format("{}", fmt::join(args.rank_slowdown, " "));
  // Where experts_in_use says so, a folder without weights is priced as a server with dummy ones.
  rows["load_format"] = weights.experts_in_use > 0 ? "dummy" : args.load_format.value_or("auto");
  rows["dtype"] = args.dtype != "auto" ? args.dtype : args.numeric() ? model.dtype : "bfloat16";
  if (model.quantization.quantized()) rows["quantization"] = model.quantization.method;
}

}  // namespace tpsim::launch
