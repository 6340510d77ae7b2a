#include "launch/deployment/graphs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "attention/selection/registry.h"
#include "proto/base/error.h"
#include "rank/llm/memory.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

// DeepEP's kernels for throughput cannot be captured, so SGLang captures nothing (_handle_a2a_moe).
bool never_captured(const rank::ParallelLayout& layout) {
  return layout.a2a() && layout.deepep_mode == rank::DeepEpMode::kNormal;
}

// The captured sizes of prefill that the flags ask for: up to a chunk, or less with MLA.
std::vector<std::uint32_t> prefill_captures(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                            const rank::ModelConfig& model,
                                            const rank::ParallelLayout& layout, bool staged,
                                            std::uint32_t chunk) {
  const scheduler::ReleaseRules rules = args.sglang_release.rules;
  const bool plain = layout.dp_size == 1 && !layout.a2a();
  // Pipeline stages prefill eagerly unless asked by a flag of SGLang that tpsim does not have (0.5.12's
  // server_args.py _handle_piecewise_cuda_graph, 0.5.23's arg_groups/cuda_graph_hook.py).
  if (staged) return {};
  if (args.disable_prefill_cuda_graph || never_captured(layout) ||
      (!plain && !rules.dp_attention_prefill_graphs) || !rank::default_graphs(hardware).prefill ||
      (args.disable_cuda_graph && rules.disable_cuda_graph_is_for_prefill_too) ||
      (model.is_sparse() && !rules.sparse_attention_prefills_in_pieces) ||
      model.vision.served)  // multimodal models: none of those simulated is among SGLang's exceptions
    return {};
  if (!args.prefill_cuda_graph_tokens.empty()) return args.prefill_cuda_graph_tokens;
  std::uint64_t most = chunk;
  if (model.is_mla()) most = rules.mla_prefill_graphs_to_8192 ? std::min<std::uint64_t>(most, 8192) : 2048;
  if (args.max_total_tokens) most = std::min(most, *args.max_total_tokens);
  if (args.context_length) most = std::min<std::uint64_t>(most, *args.context_length);
  most = args.prefill_cuda_graph_max_tokens.value_or(static_cast<std::uint32_t>(most));
  return rank::capture_prefill_tokens(static_cast<std::uint32_t>(most));
}

}  // namespace

Graphs resolve_graphs(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ModelConfig& model, const AttentionChoice& attention,
                      const rank::ParallelLayout& layout, const Batches& batches, bool staged) {
  const scheduler::ReleaseRules rules = args.sglang_release.rules;
  const bool speculates = !args.speculation.algorithm.empty();
  Graphs out;
  std::uint32_t max_bs =
      rank::default_batches(hardware, args.tp_size, rules.larger_batches_below_35_gib).cuda_graph_max_bs;
  if (args.max_running_requests && rules.captured_sizes_end_at_running_requests)
    max_bs = std::min(max_bs, *args.max_running_requests);
  max_bs = args.cuda_graph_max_bs.value_or(max_bs);
  out.decode =
      args.cuda_graph_bs.empty() ? rank::capture_batch_sizes(max_bs, speculates) : args.cuda_graph_bs;
  out.prefill.tokens = prefill_captures(args, hardware, model, layout, staged, batches.whole_chunk);
  out.prefill.limit_padding = rules.prefill_graphs_limit_padding;
  out.reserved_prefills = static_cast<std::uint32_t>(out.prefill.tokens.size());

  const bool on_device = rank::default_graphs(hardware).decode;
  const bool decodes_eagerly =
      args.disable_cuda_graph || args.disable_decode_cuda_graph || !on_device || never_captured(layout);
  if (!decodes_eagerly || !rules.uncaptured_decode_reserves_nothing)
    out.reserved_decode_bs = out.decode.back();
  const auto captures = [](const std::string& backend, const char* flag) {
    return attention::find_backend(backend, flag).row.supports_cuda_graph;
  };
  // The half that verifies is what is captured.
  const bool by_prefill = speculates && args.speculation.verifies_with_prefill();
  const std::string& captured = by_prefill ? attention.backends.prefill : attention.backends.decode;
  if (decodes_eagerly || !captures(captured, "--decode-attention-backend")) {
    if (!on_device)
      say(out.notes, "{}: decode is not captured on this device", hardware.name());
    else if (never_captured(layout))
      say(out.notes, "--deepep-mode normal: cannot be captured, so nothing runs in CUDA graphs");
    else if (!decodes_eagerly)
      say(out.notes, "{}: cannot be captured, so decode runs without CUDA graphs", captured);
    out.decode.clear();
  }
  if (rules.torch_native_prefill_is_eager &&
      !captures(attention.backends.prefill, "--prefill-attention-backend"))
    out.prefill.tokens.clear();
  if (layout.dp_size > 1 && batches.chunk > 0)
    std::erase_if(out.prefill.tokens, [&](std::uint32_t tokens) { return tokens > batches.chunk; });
  const attention::BackendRow& prefill =
      attention::find_backend(attention.backends.prefill, "--prefill-attention-backend").row;
  if (rules.deepseek_v3_prefill_may_be_eager && prefill.eager_deepseek_v3_prefill &&
      model.facts.may_prefill_eagerly && !out.prefill.tokens.empty()) {
    say(out.notes, "{}: prefill of {} runs without CUDA graphs, as in SGLang", attention.backends.prefill,
        model.name);
    out.prefill.tokens.clear();
  }
  return out;
}

std::vector<std::uint32_t> captured_sizes(std::vector<std::uint32_t> sizes, std::uint32_t max_running,
                                          const rank::ParallelLayout& layout) {
  if (!sizes.empty() && sizes.back() > max_running) {
    std::erase_if(sizes, [max_running](std::uint32_t size) { return size > max_running; });
    if (sizes.empty() || sizes.back() < max_running) sizes.push_back(max_running);
  }
  const bool splits_tokens = layout.a2a() || layout.moe_dense_tp1 || layout.gathers_mlp();
  const std::uint32_t unit = splits_tokens ? layout.attn_tp_size() : 1;
  if (unit == 1 || sizes.empty()) return sizes;
  std::erase_if(sizes, [unit](std::uint32_t bs) { return bs % unit != 0; });
  if (sizes.empty())
    throw_user_error(
        "--cuda-graph-bs: must have a size that is a multiple of the {} GPUs of a data-parallel rank", unit);
  return sizes;
}

void write_graphs(const std::vector<std::uint32_t>& decode, const rank::PrefillGraphs& prefill, Rows& rows) {
  rows["disable_cuda_graph"] = on_off(decode.empty());
  rows["cuda_graph_max_bs"] = decode.empty() ? "0" : std::to_string(decode.back());
  rows["cuda_graph_bs"] = fmt::format("{}", fmt::join(decode, " "));
  rows["disable_prefill_cuda_graph"] = on_off(prefill.tokens.empty());
  rows["cuda_graph_max_bs_prefill"] = prefill.tokens.empty() ? "0" : std::to_string(prefill.tokens.back());
}

}  // namespace tpsim::launch
