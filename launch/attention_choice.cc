#include "launch/attention_choice.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "attention/page_size.h"
#include "launch/images.h"
#include "launch/speculation.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using attention::CombinationRequest;

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
BackendPair named_backends(const ServerArgs& args, const attention::Selection& selection,
                           std::vector<std::string>& notes) {
  std::string base = args.attention_backend.value_or("");
  if (base.empty() && !(args.prefill_attention_backend && args.decode_attention_backend)) {
    const attention::AutomaticChoice choice = attention::choose_backend(selection);
    base = choice.backend;
    notes.push_back(fmt::format("--attention-backend: {} is chosen ({})", choice.backend, choice.reason));
  }
  return {args.prefill_attention_backend.value_or(base), args.decode_attention_backend.value_or(base)};
}

// Names as the list spells them. Throws UserError for unknown ones.
BackendPair canonical(const BackendPair& pair, const std::string& prefill_flag,
                      const std::string& decode_flag) {
  return {std::string(attention::find_backend(pair.prefill, prefill_flag).row.name),
          std::string(attention::find_backend(pair.decode, decode_flag).row.name)};
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
  selection.sinks = model.attention_sinks;
  selection.dual_chunk = model.dual_chunk.enabled();
  selection.linear_layers = model.is_hybrid_linear();
  for (const rank::AttentionKind& kind : model.attention) {
    selection.sliding_window = selection.sliding_window || kind.sliding_window > 0;
    selection.attention_chunk = selection.attention_chunk || kind.attention_chunk > 0;
  }
  return selection;
}

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

PairVerdict judge_pair(const ServerArgs& args, const BackendPair& pair, const std::string& flag,
                       const proto::HardwareProfile& hardware, const rank::ModelConfig& model) {
  attention::Selection selection = selection_of(hardware, model);
  select_for_speculation(args, model, selection);
  PairVerdict verdict;
  verdict.kv_format = choose_kv_format(args, selection, pair, model).format;
  CombinationRequest request = request_for(hardware, selection, pair, verdict.kv_format);
  request.flag = flag;
  const attention::PageChoice page = attention::choose_page_size(request, args.page_size);
  verdict.page_size = request.page_size = page.page_size;
  verdict.page_note = page.note;
  verdict.obstacle = attention::obstacle(request);
  return verdict;
}

AttentionChoice choose_attention(const ServerArgs& args, const BackendPair* compared,
                                 const proto::HardwareProfile& hardware, const rank::ModelConfig& model) {
  attention::Selection selection = selection_of(hardware, model);
  select_for_speculation(args, model, selection);
  const char* both = compared != nullptr ? "--attention-backends" : "--attention-backend";
  const std::string prefill_flag =
      compared == nullptr && args.prefill_attention_backend ? "--prefill-attention-backend" : both;
  const std::string decode_flag =
      compared == nullptr && args.decode_attention_backend ? "--decode-attention-backend" : both;
  AttentionChoice choice;
  choice.backends = canonical(compared != nullptr ? *compared : named_backends(args, selection, choice.notes),
                              prefill_flag, decode_flag);
  if (compared == nullptr && !args.attention_backend && !args.decode_attention_backend &&
      takes_profiled_qwen3_vl(args, hardware, model)) {
    choice.backends.decode = "flashinfer";
    choice.notes.emplace_back(
        "--decode-attention-backend: flashinfer is chosen, SGLang's for Qwen3-VL on this GPU");
  }
  KvFormatChoice kv = choose_kv_format(args, selection, choice.backends, model);
  choice.kv_format = kv.format;
  CombinationRequest request = request_for(hardware, selection, choice.backends, kv.format);
  request.flag = prefill_flag;
  request.decode_flag = decode_flag;
  attention::PageChoice page = attention::choose_page_size(request, args.page_size);
  choice.page_size = request.page_size = page.page_size;
  attention::check_combination(request);
  if (!kv.note.empty()) choice.notes.push_back(std::move(kv.note));
  if (!page.note.empty()) (page.changed ? choice.warnings : choice.notes).push_back(std::move(page.note));
  return choice;
}

void check_draft_backend(const ServerArgs& args, const proto::HardwareProfile& hardware,
                         const rank::ModelConfig& draft, std::uint32_t page_size, std::uint32_t topk,
                         std::string& backend) {
  attention::Selection selection = selection_of(hardware, draft);
  selection.spec_topk = topk;
  const bool named = args.speculation.draft_attention_backend.has_value();
  const std::string flag = named ? "--speculative-draft-attention-backend" : "--speculative-draft-model-path";
  if (named) backend = *args.speculation.draft_attention_backend;
  backend = std::string(attention::find_backend(backend, flag).row.name);
  CombinationRequest request =
      request_for(hardware, selection, {backend, backend},
                  choose_kv_format(args, selection, {backend, backend}, draft).format);
  request.flag = flag;
  request.page_size = page_size;
  attention::check_combination(request);
}

}  // namespace tpsim::launch
