#include "launch/deployment/draft.h"

#include "attention/selection/registry.h"
#include "proto/base/error.h"
#include "rank/config/shard.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

// Whether the draft model's extend runs as a graph where verification does, with that attention backend.
bool draft_extend_captured(const scheduler::SglangRelease& release, const Speculation& speculation,
                           const std::string& backend) {
  const scheduler::ReleaseRules rules = release.rules;
  const bool v1 = !speculation.config.v2;
  switch (attention::find_backend(backend, "--speculative-draft-attention-backend").row.draft_extend_graphs) {
    using enum attention::DraftExtendGraphs;
    case kInV1:
      return v1;
    case kSinceFlashInfer:
      return v1 || (rules.draft_extend_graphs_with_flashinfer && !speculation.draft->config.is_mla());
    case kSinceFlashAttention:
      return v1 || rules.draft_extend_graphs_with_flash_attention;
    case kSinceFlashAttentionInV1:
      return rules.draft_extend_graphs_with_flash_attention;
    case kAlways:
      break;
  }
  return true;
}

// With data-parallel attention some draft models are each data-parallel rank's own.
rank::ParallelLayout draft_layout(const SpeculationArgs& args, const Speculation& speculation,
                                  const rank::ParallelLayout& layout) {
  if (!args.moe_a2a_backend.empty() && args.moe_a2a_backend != "none" && !layout.a2a())
    throw_user_error(
        "--speculative-moe-a2a-backend deepep: is simulated with --moe-a2a-backend deepep only; use none");
  rank::ParallelLayout out;
  if (speculation.drafts_alone(layout)) {
    out.tp_size = layout.attn_tp_size();
    return out;
  }
  out = layout;
  if (args.moe_a2a_backend == "none") out.moe_a2a = rank::MoeA2aBackend::kNone;
  return out;
}

}  // namespace

Draft resolve_draft(const ServerArgs& args, const proto::HardwareProfile& hardware,
                    const rank::ModelConfig& model, const Speculation& speculation,
                    const AttentionChoice& attention, const rank::ParallelLayout& layout) {
  const SpeculationArgs& given = args.speculation;
  Draft draft;
  draft.kv_format = given.draft_kv_cache_dtype == "fp8_e4m3"       ? NumberFormat::kFp8E4M3
                    : given.draft_kv_cache_dtype == "fp8_e5m2"     ? NumberFormat::kFp8E5M2
                    : given.draft_kv_cache_dtype.starts_with("bf") ? NumberFormat::kBf16
                                                                   : attention.kv_format;
  draft.layout = draft_layout(given, speculation, layout);
  if (!speculation.draft) return draft;
  draft.backend = given.verifies_with_prefill() ? attention.backends.prefill : attention.backends.decode;
  if (given.draft_attention_backend || speculation.draft->config.is_mla() != model.is_mla())
    draft.backend = choose_draft_backend(args, hardware, speculation.draft->config, attention.page_size,
                                         speculation.config.topk, draft.backend);
  draft.extend_captured = draft_extend_captured(args.sglang_release, speculation, draft.backend);
  return draft;
}

rank::DraftMemory draft_memory(const BatchArgs& args, const rank::ModelConfig& model,
                               const Speculation& speculation, const Draft& draft) {
  rank::DraftMemory memory;
  if (!speculation.draft) return memory;
  memory.weight_bytes = rank::draft_weight_bytes(
      *speculation.draft, rank::make_shard(speculation.draft->config, draft.layout, 0));
  memory.from_pool = args.sglang_release.rules.draft_model_from_pool;
  // Counted as if its layers were the target's that have KV (DefaultPoolConfigurator of
  // pool_configurator.py).
  memory.layers = static_cast<double>(speculation.draft->config.num_layers) /
                  (model.num_layers - model.linear.num_layers);
  return memory;
}

}  // namespace tpsim::launch
