#include "launch/deployment/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "attention/selection/registry.h"
#include "launch/deployment/speculation.h"
#include "proto/base/error.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

using attention::CombinationRequest;

constexpr std::uint64_t kLargeGpu = std::uint64_t{60} << 30;  // bytes

CombinationRequest request_for(const proto::HardwareProfile& hardware, const attention::Selection& selection,
                               const BackendPair& pair, NumberFormat kv_format) {
  CombinationRequest request;
  static_cast<attention::Selection&>(request) = selection;
  request.pair = {pair.prefill, pair.decode};
  request.gpu = hardware.name();
  request.kv_format = kv_format;
  return request;
}

// --prefill-attention-backend and --decode-attention-backend over --attention-backend over the automatic one.
BackendPair named_backends(const ServerArgs& args, const attention::Selection& selection, Notes& notes) {
  std::string base = args.attention_backend.value_or("");
  if (base.empty() && !(args.prefill_attention_backend && args.decode_attention_backend)) {
    const attention::AutomaticChoice choice = attention::choose_backend(selection);
    base = choice.backend;
    say(notes, "--attention-backend: {} is chosen ({})", choice.backend, choice.reason);
  }
  return {args.prefill_attention_backend.value_or(base), args.decode_attention_backend.value_or(base)};
}

// Names as the list spells them. Throws UserError for unknown ones.
BackendPair canonical(const BackendPair& pair, const std::string& prefill_flag,
                      const std::string& decode_flag) {
  return {std::string(attention::find_backend(pair.prefill, prefill_flag).row.name),
          std::string(attention::find_backend(pair.decode, decode_flag).row.name)};
}

// Backends that attend to more than a model's chunks.
void note_whole_chunks(const rank::ModelConfig& model, AttentionChoice& choice) {
  std::uint32_t chunk = 0;
  for (const rank::AttentionKind& kind : model.attention) chunk = std::max(chunk, kind.attention_chunk);
  if (chunk == 0) return;
  std::vector<std::string> whole;
  for (const std::string& name : {choice.backends.prefill, choice.backends.decode}) {
    const bool local = attention::find_backend(name, "--attention-backend").row.local_attention;
    if (!local && std::find(whole.begin(), whole.end(), name) == whole.end()) whole.push_back(name);
  }
  if (!whole.empty())
    say(choice.notes,
        "{}: reads the whole context in {}'s chunked layers, as in SGLang, where only fa3 and "
        "intel_xpu read their chunk of {} tokens",
        fmt::join(whole, ", "), model.name, chunk);
}

bool takes_profiled_qwen3_vl(const ServerArgs& args, const proto::HardwareProfile& hardware,
                             const rank::ModelConfig& model) {
  return !args.numeric() && model.facts.profiled_images && model.vision.present() &&
         args.sglang_release.rules.qwen3_vl_is_profiled &&
         generation_of(hardware) == attention::GpuGeneration::kHopper && hardware.memory_bytes() >= kLargeGpu;
}

struct KvFormatChoice {
  NumberFormat format = NumberFormat::kBf16;
  std::string note;  // why it is not what --dtype says; may be empty
};

// Numeric ranks compute in fp32, and "auto" rounds nothing on the way to the KV cache: a checkpoint in 16 bit
// then gives what Transformers gives in fp32. --dtype bfloat16 or --kv-cache-dtype make it a narrower one. A
// modeled cache is 16 bit unless --kv-cache-dtype or the backend says otherwise.
KvFormatChoice choose_kv_format(const ServerArgs& args, const attention::Selection& selection,
                                const BackendPair& backends, const rank::ModelConfig& model) {
  const bool open = args.kv_cache_dtype == "auto";
  const attention::BackendRow& row =
      attention::find_backend(backends.decode, "--decode-attention-backend").row;
  if (open && !args.numeric() && row.fp8_by_default.contains(selection.generation))
    return {NumberFormat::kFp8E4M3,
            fmt::format("--kv-cache-dtype: fp8_e4m3 is chosen, SGLang's default for {} on this device",
                        row.name)};
  // configure_kv_cache_dtype of SGLang's model_runner.py.
  if (open && !args.numeric() && model.quantization.kv_cache_fp8)
    return {NumberFormat::kFp8E4M3, "--kv-cache-dtype: fp8_e4m3 is chosen, which the checkpoint asks for"};
  const std::string dtype = !args.numeric() ? "bfloat16" : args.dtype == "auto" ? "float32" : args.dtype;
  const std::string& name = open ? dtype : args.kv_cache_dtype;
  for (const auto format : {NumberFormat::kFp32, NumberFormat::kFp16, NumberFormat::kFp8E4M3,
                            NumberFormat::kFp8E5M2, NumberFormat::kFp4E2M1}) {
    if (to_string(format) == name) return {format, ""};
  }
  return {NumberFormat::kBf16, ""};
}

// arg_groups/mamba_hook.py: without snapshots, which LFM2's states have none of (states.cc), the radix cache
// takes pages of one token only. Other makers' backends have their pages after that was looked at; before
// 0.5.16 one of SGLang's own turned the radix cache off (choose_states).
std::string state_pages_obstacle(const ServerArgs& args, const attention::Selection& selection,
                                 const rank::ModelConfig& model, const BackendPair& pair,
                                 std::uint32_t page) {
  if (!args.page_size && !args.sglang_release.rules.cached_states_refuse_backends &&
      attention::find_backend(pair.prefill, "--attention-backend").row.uncaches_states)
    return "";
  const bool gpu = attention::kCudaGenerations.contains(selection.generation) ||
                   selection.generation == attention::GpuGeneration::kRocm;
  const bool kept = model.is_hybrid_linear() && model.linear.kind == rank::LinearKind::kShortConv &&
                    !args.disable_radix_cache &&
                    model.facts.overlaps_beside_states <= args.sglang_release.rules.serial_states;
  if (!gpu || !kept || page <= 1) return "";
  return fmt::format(
      "--page-size {}: SGLang's radix cache keeps states of {} at the end of a sequence only, which needs "
      "pages of 1 token; use --page-size 1 and a backend that has it, or --disable-radix-cache",
      page, model.architecture);
}

}  // namespace

std::string hardware_name(const ServerArgs& args) {
  return args.hardware.empty() ? "h200-sxm" : args.hardware;
}

attention::GpuGeneration generation_of(const proto::HardwareProfile& hardware) {
  // Checked where the profile was read.
  return attention::parse_gpu_generation(hardware.architecture()).value();
}

attention::Selection selection_of(const proto::HardwareProfile& hardware, const rank::ModelConfig& model) {
  attention::Selection selection;
  selection.generation = generation_of(hardware);
  selection.mla = model.is_mla();
  selection.sparse = model.is_sparse();
  selection.compressed = model.is_compressed();
  selection.block_sparse = model.is_block_sparse();
  selection.sinks = model.attention_sinks;
  selection.dual_chunk = model.dual_chunk.enabled();
  selection.no_flashinfer = model.facts.no_flashinfer;
  const bool short_conv = model.is_hybrid_linear() && model.linear.kind == rank::LinearKind::kShortConv;
  selection.linear_layers = model.is_hybrid_linear() && !short_conv;
  // Of the classes that SGLang looks at; LFM2-VL's is none.
  selection.short_convolutions = short_conv && model.facts.overlaps_beside_states < 2;
  for (const rank::AttentionKind& kind : model.attention) {
    selection.sliding_window = selection.sliding_window || kind.sliding_window > 0;
    selection.attention_chunk = selection.attention_chunk || kind.attention_chunk > 0;
    selection.wide_heads = selection.wide_heads || (!model.is_mla() && kind.heads.head_dim > 256);
    selection.narrow_values = selection.narrow_values || kind.heads.value_dim() < kind.heads.head_dim;
  }
  return selection;
}

namespace {

void select_for_flags(const ServerArgs& args, const rank::ModelConfig& model,
                      attention::Selection& selection) {
  select_for_speculation(args, model, selection);
  selection.fp8_e4m3_named = args.kv_cache_dtype == "fp8_e4m3";
  selection.kv_heads = std::max(1U, model.num_key_value_heads / args.tp_size);
}

}  // namespace

bool release_lacks(const ServerArgs& args, const std::string& backend) {
  return args.sglang_release.rules.refuses_dropped_backends &&
         attention::find_backend(backend, "--attention-backend").row.dropped;
}

PairVerdict judge_pair(const ServerArgs& args, const BackendPair& pair, const std::string& flag,
                       const proto::HardwareProfile& hardware, const rank::ModelConfig& model) {
  attention::Selection selection = selection_of(hardware, model);
  select_for_flags(args, model, selection);
  PairVerdict verdict;
  verdict.kv_format = choose_kv_format(args, selection, pair, model).format;
  CombinationRequest request = request_for(hardware, selection, pair, verdict.kv_format);
  request.flag = flag;
  const attention::PageChoice page = attention::choose_page_size(request, args.page_size);
  verdict.page_size = request.page_size = page.page_size;
  verdict.page_note = page.note;
  verdict.obstacle = attention::obstacle(request);
  if (verdict.obstacle.empty())
    verdict.obstacle = state_pages_obstacle(args, selection, model, pair, page.page_size);
  return verdict;
}

AttentionChoice choose_attention(const ServerArgs& args, const BackendPair* compared,
                                 const proto::HardwareProfile& hardware, const rank::ModelConfig& model) {
  attention::Selection selection = selection_of(hardware, model);
  select_for_flags(args, model, selection);
  if (args.numeric() && model.is_block_sparse() && selection.spec_topk > 1)
    throw_user_error(
        "--executor numeric: trees of drafts over the chosen blocks of {} are priced and not computed; let "
        "drafts be a chain ({} 1) or use --executor modeled",
        model.name, selection.topk_flag);
  const char* both = compared != nullptr ? "--attention-backends" : "--attention-backend";
  const std::string prefill_flag =
      compared == nullptr && args.prefill_attention_backend ? "--prefill-attention-backend" : both;
  const std::string decode_flag =
      compared == nullptr && args.decode_attention_backend ? "--decode-attention-backend" : both;
  AttentionChoice choice;
  choice.mla.chunked_prefix_cache = !args.disable_chunked_prefix_cache;
  choice.mla.ragged = !args.flashinfer_mla_disable_ragged;
  choice.profiled_qwen3_vl = takes_profiled_qwen3_vl(args, hardware, model);
  choice.backends = canonical(compared != nullptr ? *compared : named_backends(args, selection, choice.notes),
                              prefill_flag, decode_flag);
  for (const std::string& backend : std::set{choice.backends.prefill, choice.backends.decode})
    if (release_lacks(args, backend))
      say(choice.warnings, "SGLang {} has {} no more and refuses its name; --sglang-version 0.5.12 has it",
          args.sglang_release.name, backend);
  if (compared == nullptr && !args.attention_backend && !args.decode_attention_backend &&
      choice.profiled_qwen3_vl) {
    const auto profiled = std::ranges::find_if(attention::backend_list(), [](const auto* backend) {
      return backend->row.decodes_profiled_qwen3_vl;
    });
    choice.backends.decode = (*profiled)->row.name;
    say(choice.notes, "--decode-attention-backend: {} is chosen, SGLang's for Qwen3-VL on this GPU",
        choice.backends.decode);
  }
  const bool decode_named =
      compared != nullptr ? compared->prefill != compared->decode : args.decode_attention_backend.has_value();
  choice.hicache = choose_hicache_io(args, model, selection.generation, decode_named, choice.backends,
                                     choice.notes, choice.warnings);
  KvFormatChoice kv = choose_kv_format(args, selection, choice.backends, model);
  choice.kv_format = kv.format;
  if (args.numeric() && model.is_compressed() && kv.format != NumberFormat::kFp32)
    throw_user_error(
        "--executor numeric: what {} compresses is kept in float32 only; leave --kv-cache-dtype and --dtype "
        "out",
        model.name);
  CombinationRequest request = request_for(hardware, selection, choice.backends, kv.format);
  request.flag = prefill_flag;
  request.decode_flag = decode_flag;
  attention::PageChoice page = attention::choose_page_size(request, args.page_size);
  choice.page_size = request.page_size = page.page_size;
  attention::check_combination(request);
  if (const std::string pages = state_pages_obstacle(args, selection, model, choice.backends, page.page_size);
      !pages.empty())
    throw UserError(pages);
  if (!kv.note.empty()) choice.notes.push_back(std::move(kv.note));
  if (!page.note.empty()) (page.changed ? choice.warnings : choice.notes).push_back(std::move(page.note));
  note_whole_chunks(model, choice);
  return choice;
}

std::string choose_draft_backend(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                 const rank::ModelConfig& draft, std::uint32_t page_size, std::uint32_t topk,
                                 const std::string& backend) {
  attention::Selection selection = selection_of(hardware, draft);
  selection.spec_topk = topk;
  const bool named = args.speculation.draft_attention_backend.has_value();
  const std::string flag = named ? "--speculative-draft-attention-backend" : "--speculative-draft-model-path";
  const std::string name(
      attention::find_backend(named ? *args.speculation.draft_attention_backend : backend, flag).row.name);
  CombinationRequest request = request_for(hardware, selection, {name, name},
                                           choose_kv_format(args, selection, {name, name}, draft).format);
  request.flag = flag;
  request.page_size = page_size;
  attention::check_combination(request);
  return name;
}

SparseAttention choose_sparse_attention(const ServerArgs& args, const proto::HardwareProfile& hardware,
                                        const rank::ModelConfig& model, NumberFormat kv_format,
                                        const rank::ParallelLayout& layout) {
  SparseAttention sparse;
  if (!model.is_sparse()) {
    if (args.nsa_prefill_backend || args.nsa_decode_backend)
      throw_user_error("{}: {} has no sparse attention; leave it out",
                       args.nsa_prefill_backend ? "--nsa-prefill-backend" : "--nsa-decode-backend",
                       model.name);
    return sparse;
  }
  sparse.options.kernels =
      attention::choose_sparse_kernels({.prefill = args.nsa_prefill_backend,
                                        .decode = args.nsa_decode_backend,
                                        .generation = generation_of(hardware),
                                        .kv_format = kv_format,
                                        .num_q_heads = model.num_attention_heads / layout.attn_tp_size(),
                                        .glm = model.facts.glm_sparse,
                                        .mixed_chunk = args.enable_mixed_chunk});
  if (args.numeric() && sparse.options.kernels.prefill == attention::SparseKernel::kFlashMlaSparseQ8)
    throw_user_error(
        "--nsa-prefill-backend flashmla_sparse_q8: --executor numeric does not round queries and latents to "
        "fp8 in the kernel; use flashmla_sparse");
  sparse.options.top_k = model.indexer.top_k;
  sparse.options.list_lengths = args.sglang_release.rules.sparse_lists_have_lengths;
  sparse.token_bytes = attention::sparse_token_bytes(sparse.options.kernels, kv_format,
                                                     model.mla.kv_lora_rank, model.mla.qk_rope_head_dim);
  return sparse;
}

void write_attention(const ServerArgs& args, const rank::ModelConfig& model, const AttentionChoice& choice,
                     const SparseAttention& sparse, Rows& rows) {
  rows["prefill_attention_backend"] = choice.backends.prefill;
  rows["decode_attention_backend"] = choice.backends.decode;
  if (model.is_sparse()) {
    rows["nsa_prefill_backend"] = to_string(sparse.options.kernels.prefill);
    rows["nsa_decode_backend"] = to_string(sparse.options.kernels.decode);
  }
  rows["page_size"] = std::to_string(choice.page_size);
  rows["kv_cache_dtype"] = std::string(to_string(choice.kv_format));
  if (model.is_mla()) {
    rows["disable_chunked_prefix_cache"] = on_off(args.disable_chunked_prefix_cache);
    rows["flashinfer_mla_disable_ragged"] = on_off(args.flashinfer_mla_disable_ragged);
  }
}

}  // namespace tpsim::launch
