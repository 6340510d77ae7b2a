// Whether a pair of backends can serve a deployment. Every rule is read from the backends' own rows; what is
// said of one half is said once for each role.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "attention/selection/registry.h"
#include "proto/base/error.h"

namespace tpsim::attention {
namespace {

// What a model may ask for that not every backend has.
struct Need {
  bool Selection::*asked;
  bool (*has)(const BackendRow& row, const Selection& selection);
  std::string_view clause;  // of a backend without it
};
constexpr Need kNeeds[] = {
    {&Selection::dual_chunk, [](const BackendRow& row, const Selection&) { return row.dual_chunk; },
     "has no dual chunk attention, which this model's layers need"},
    {&Selection::sliding_window,
     [](const BackendRow& row, const Selection& selection) {
       // fa4's windows stand in no matrix; models whose values are narrow are given it with them.
       return selection.mla || row.sliding_window != Support::kNo ||
              (selection.narrow_values && row.narrow_values);
     },
     "has no sliding-window attention, which this model's layers need"},
    {&Selection::attention_chunk, [](const BackendRow& row, const Selection&) { return row.attention_chunk; },
     "has no attention within chunks, which this model's layers need"},
    {&Selection::sinks, [](const BackendRow& row, const Selection&) { return row.sinks; },
     "has no attention sinks, which this model's layers need"},
    {&Selection::wide_heads, [](const BackendRow& row, const Selection&) { return row.wide_heads; },
     "takes heads of at most 256 elements, and this model's are wider"},
    {&Selection::narrow_values, [](const BackendRow& row, const Selection&) { return row.narrow_values; },
     "takes values as wide as keys only, and this model's are narrower"},
    {&Selection::no_flashinfer, [](const BackendRow& row, const Selection&) { return !row.excluded; },
     "is refused by SGLang for this model's class"},
    {&Selection::linear_layers,
     [](const BackendRow& row, const Selection& selection) {
       return row.linear_layers || selection.generation != GpuGeneration::kBlackwell;
     },
     "does not run beside gated delta-net layers on Blackwell"},
    {&Selection::short_convolutions,
     [](const BackendRow& row, const Selection&) { return !row.looks_at_first_layer; },
     "takes its shapes from the first layer, which here is a convolution without attention"},
};

// Whether a row reads a cache of that format.
bool reads(const BackendRow& row, const CombinationRequest& request) {
  const bool mla = request.mla && !request.sparse;
  if (request.kv_format == NumberFormat::kFp8E5M2 && !row.fp8_e5m2) return false;
  if (row.sparse) return request.kv_format != NumberFormat::kFp4E2M1;
  // Latents in fp8; numeric execution keeps them as they are computed.
  if (row.compressed)
    return request.kv_format == NumberFormat::kFp8E4M3 || request.kv_format == NumberFormat::kFp32;
  if (is_fp8(request.kv_format) && row.fp8_besides.contains(request.generation)) return true;
  if (is_fp8(request.kv_format)) return (mla ? row.mla_fp8 : row.mha_fp8) != Support::kNo;
  if (request.kv_format == NumberFormat::kFp4E2M1) return (mla ? row.mla_fp4 : row.mha_fp4) != Support::kNo;
  return true;
}

template <typename Where>
std::string names_where(Where where) {
  std::string names;
  for (const BackendDescription* backend : backend_list()) {
    if (where(*backend)) names += (names.empty() ? "" : ", ") + std::string(backend->row.name);
  }
  return names;
}

// "; use fa3, triton", or "" where nothing would do.
std::string instead(const std::string& names) { return names.empty() ? "" : "; use " + names; }

std::string kv_obstacle(const CombinationRequest& request, const BackendRow& row, const char* role) {
  const bool prefill = role == std::string_view("prefill");
  if (reads(row, request)) {
    const GpuGenerations& cannot = prefill ? row.no_fp8_prefill : row.no_fp8_decode;
    if (!is_fp8(request.kv_format) || !cannot.contains(request.generation)) return "";
    return fmt::format(
        "--kv-cache-dtype {}: the {} kernel of {} reads no fp8 KV cache on {}; name another backend for it, "
        "or use --kv-cache-dtype auto",
        to_string(request.kv_format), role, row.name, to_string(request.generation));
  }
  if (row.compressed)
    return fmt::format("--kv-cache-dtype {}: {} keeps DeepSeek V4's latents in fp8_e4m3 only; use auto",
                       to_string(request.kv_format), row.name);
  const bool fp8 = is_fp8(request.kv_format);
  const std::string others = names_where([&](const BackendDescription& other) {
    return (role != std::string_view("decode") || !prefills_only(other.row, request)) &&
           unfit(other.row, request).empty() && reads(other.row, request);
  });
  return fmt::format("--kv-cache-dtype {}: {} cannot read an {} KV cache ({}); use --kv-cache-dtype auto{}",
                     to_string(request.kv_format), row.name, fp8 ? "fp8" : "fp4", role,
                     others.empty() ? "" : ", or " + others);
}

std::string half_obstacle(const CombinationRequest& request, const std::string& name, const std::string& flag,
                          bool decode) {
  const BackendRow& row = find_backend(name, flag).row;
  const char* role = decode ? "decode" : "prefill";
  const std::string fitting = names_where([&](const BackendDescription& other) {
    return !(decode && prefills_only(other.row, request)) && unfit(other.row, request).empty();
  });
  if (const std::string clause = unfit(row, request); !clause.empty()) {
    const bool device = !row.devices(request.mla).contains(request.generation);
    return fmt::format(
        "{} {}: {}{}{}", flag, name, clause,
        device ? fmt::format(", and {} is {}", request.gpu, to_string(request.generation)) : "",
        instead(fitting));
  }
  if (decode && prefills_only(row, request))
    return fmt::format("{} {}: is for prefill only; name another backend for decode{}", flag, name,
                       fitting.empty() ? "" : ": " + fitting);
  return kv_obstacle(request, row, role);
}

Support support_for_drafts(const BackendRow& row, const CombinationRequest& request, bool tree) {
  if (request.mla) return tree ? row.mla_spec_topk : row.mla_spec;
  return tree ? row.mha_spec_topk : row.mha_spec;
}

// Of the backend that drafts and verifies (--speculative-attention-mode), and of what no backend may be
// beside a tree of drafts.
std::string spec_obstacle(const CombinationRequest& request, const std::string& name,
                          const std::string& flag) {
  const bool tree = request.spec_topk > 1;
  const bool paged = request.page_size > 1;
  const auto chain = [&] { return fmt::format("{} 1", request.topk_flag); };
  for (const std::string& half : {request.pair.prefill, request.pair.decode}) {
    if (tree && find_backend(half, flag).row.refuses_trees)
      return fmt::format("{} {}: {} verifies chains of drafts only; use {}", request.topk_flag,
                         request.spec_topk, half, chain());
  }
  const BackendRow& row = find_backend(name, flag).row;
  const Support support = support_for_drafts(row, request, tree);
  const std::string others = names_where([&](const BackendDescription& other) {
    const Support theirs = support_for_drafts(other.row, request, tree);
    return !prefills_only(other.row, request) && unfit(other.row, request).empty() &&
           !other.row.refuses_trees &&
           (theirs == Support::kYes || (theirs == Support::kPageSizeOneOnly && !paged));
  });
  if (support == Support::kNo) {
    if (tree && support_for_drafts(row, request, false) != Support::kNo)
      return fmt::format("{} {}: {} verifies chains of drafts only; use {}{}", request.topk_flag,
                         request.spec_topk, name, chain(), others.empty() ? "" : ", or " + others);
    return fmt::format("{} {}: does not verify drafts (speculative decoding){}", flag, name, instead(others));
  }
  if (support == Support::kPageSizeOneOnly && paged)
    return fmt::format("--page-size {}: {} verifies trees of drafts on pages of 1 token only; use 1, or {}",
                       request.page_size, name, chain());
  if (tree && paged && !request.mla && !row.paged_trees) {
    const std::string able =
        names_where([](const BackendDescription& other) { return other.row.paged_trees; });
    return fmt::format(
        "--page-size {}: trees of drafts on pages of more than 1 token are verified by {} only, not {}; use "
        "--page-size 1, or {}, or {}",
        request.page_size, able, name, chain(), able);
  }
  return "";
}

}  // namespace

std::string unfit(const BackendRow& row, const Selection& selection) {
  if (const GpuGenerations& devices = row.devices(selection.mla); !devices.contains(selection.generation))
    return fmt::format("runs {}on {} only",
                       row.mla_generations.empty() ? ""
                       : selection.mla             ? "MLA "
                                                   : "MHA ",
                       devices.names());
  if (row.sparse != selection.sparse)
    return row.sparse ? "is for models with DeepSeek's sparse attention (V3.2, GLM-5)"
                      : "has no sparse attention, whose tokens this model's indexer chooses";
  if (row.compressed != selection.compressed)
    return row.compressed ? "is for DeepSeek V4, whose layers attend to compressed tokens"
                          : "has no attention to compressed tokens, which this model's layers need";
  if (row.dual_chunk && !selection.dual_chunk)
    return "is for models with a dual_chunk_attention_config (Qwen2.5-1M)";
  if (!row.sparse && !row.compressed && (selection.mla ? !row.has_mla : !row.has_mha))
    return fmt::format("has no {} form, which this model needs", selection.mla ? "MLA" : "MHA");
  for (const Need& need : kNeeds) {
    if (selection.*need.asked && !need.has(row, selection)) return std::string(need.clause);
  }
  return "";
}

std::string obstacle(const CombinationRequest& request) {
  const std::string& decode_flag = request.decode_flag.empty() ? request.flag : request.decode_flag;
  find_backend(request.pair.decode, decode_flag);
  std::string sentence = half_obstacle(request, request.pair.prefill, request.flag, false);
  if (sentence.empty()) sentence = half_obstacle(request, request.pair.decode, decode_flag, true);
  if (!sentence.empty()) return sentence;
  if (request.kv_format == NumberFormat::kFp4E2M1 && !kCudaGenerations.contains(request.generation))
    return fmt::format("--kv-cache-dtype fp4_e2m1: SGLang has it on NVIDIA GPUs only, and {} is {}; use auto",
                       request.gpu, to_string(request.generation));
  if (sentence = page_obstacle(request); !sentence.empty() || request.spec_topk == 0) return sentence;
  return request.verifies_with_prefill ? spec_obstacle(request, request.pair.prefill, request.flag)
                                       : spec_obstacle(request, request.pair.decode, decode_flag);
}

void check_combination(const CombinationRequest& request) {
  const std::string sentence = obstacle(request);
  if (!sentence.empty()) throw UserError(sentence);
}

}  // namespace tpsim::attention
