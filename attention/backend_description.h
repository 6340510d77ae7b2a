// How an attention backend describes itself: its row of SGLang's support matrices, when SGLang chooses it,
// and how it is made. A backend is one file of attention/backends that defines one BackendDescription of its
// name; attention/backends/CMakeLists.txt lists the names in order of preference, and everything else reads
// that list (selection/registry.h).
//
// Source of the rows: the support matrices, page-size constraints and "Automatic Selection Logic" of SGLang's
// attention backend documentation (the newest in shared/reference), and its list of backend names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attention/backend.h"
#include "attention/gpu_generation.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

enum class Support : std::uint8_t { kNo, kYes, kPageSizeOneOnly };

// When SGLang captures a draft model's extends with a backend. Source: eagle_worker_v2.py of each release
// (_capture_cuda_graphs, init_cuda_graphs); eagle_worker.py, v1, captures with every backend that it can
// extend with.
enum class DraftExtendGraphs : std::uint8_t {
  kInV1,                     // only there
  kSinceFlashInfer,          // v2: of MHA models, from the release on that does with FlashInfer
  kSinceFlashAttention,      // v2: from the release on that does with FlashAttention
  kSinceFlashAttentionInV1,  // the same, v1 too
  kAlways,
};

// What a server compiles when it meets a decode batch of a size that it has not had yet; seconds and sources
// are in rank/llm/fresh_kernels.h.
enum class FreshDecode : std::uint8_t {
  kNone,
  kMetadata,  // Triton's kernel that prepares page tables and lengths
  kSplits,    // Triton's kernel that decides the KV splits
  kEngines,   // cuDNN's engines, by KV length
};

// Page sizes, in tokens, that kernels read natively.
class PageSizes {
 public:
  // Any.
  constexpr PageSizes() = default;
  constexpr PageSizes(std::initializer_list<std::uint32_t> sizes) {
    for (const std::uint32_t size : sizes) sizes_[count_++] = size;
  }
  constexpr bool any() const { return count_ == 0; }
  // Tokens are read one by one, whatever the pool's page size is.
  constexpr bool one() const { return count_ == 1 && sizes_[0] == 1; }
  constexpr std::span<const std::uint32_t> list() const { return {sizes_.data(), count_}; }
  constexpr bool contains(std::uint32_t size) const {
    for (const std::uint32_t known : list()) {
      if (known == size) return true;
    }
    return any();
  }
  // "any", "1", "16, 32 or 64"
  std::string words() const {
    if (any()) return "any";
    std::string words;
    for (std::size_t i = 0; i < count_; ++i)
      words += (i == 0 ? "" : i + 1 == count_ ? " or " : ", ") + std::to_string(sizes_[i]);
    return words;
  }

 private:
  std::array<std::uint32_t, 4> sizes_ = {};
  std::size_t count_ = 0;
};

// What becomes of a decode backend where HiCache's kernels copy between GPU and host (--hicache-io-backend
// kernel), in SGLang before 0.5.23 (server_args.py, _handle_hicache): one is replaced, by the first that goes
// with the model, or by the other.
enum class BesideHostKernels : std::uint8_t { kServes, kReplaced, kFirst, kOther };

// One row of the matrices. A backend without MHA (or MLA) form has has_mha (has_mla) false, and its other
// mha_ (mla_) fields mean nothing.
struct BackendRow {
  std::string_view name{};   // as --attention-backend spells it
  std::string_view alias{};  // another spelling of it
  std::string_view title{};
  std::string_view mla_title{};  // in the MLA matrix, where that calls it otherwise
  // Which line of the MHA and of the MLA matrix it is as SGLang prints them, from 1; 0: not in the matrix.
  std::uint8_t mha_place = 0, mla_place = 0;
  GpuGenerations generations{};
  GpuGenerations mla_generations{};  // of the MLA form, where they are others; empty: the same
  bool prefill_only = false;
  bool excluded = false;  // from models of which Selection::no_flashinfer holds
  bool dropped = false;   // SGLang 0.5.12 has it, 0.5.23 no more (arg_groups/choices.py)
  bool supports_cuda_graph = true;

  bool has_mha = false;
  PageSizes mha_page_sizes{};
  Support mha_fp8 = Support::kNo, mha_fp4 = Support::kNo;
  Support mha_spec = Support::kNo, mha_spec_topk = Support::kNo;
  Support sliding_window = Support::kNo;
  Support multimodal = Support::kNo;  // its kernel for vision encoders: attention/full

  bool has_mla = false;
  PageSizes mla_page_sizes{};
  Support mla_fp8 = Support::kNo, mla_fp4 = Support::kNo, mla_chunked_prefix = Support::kNo;
  Support mla_spec = Support::kNo, mla_spec_topk = Support::kNo;

  // What no column of the matrices says. Source: SGLang 0.5.12 server_args.py and 0.5.23 arg_groups
  // (model_hook.py, model_overrides, overrides.py) and layers/attention/attention_registry.py.
  bool sinks = false;            // attention sinks (gpt-oss)
  bool attention_chunk = false;  // serves layers that attend within chunks (Llama 4) …
  // … and cuts their tokens into chunks (local_attention.py). Others attend to the whole context there: Llama
  // 4's layers name no window (models/llama4.py).
  bool local_attention = false;
  bool wide_heads = false;  // takes heads of more than 256 elements (gemma 4)
  // Takes values narrower than their keys (ASYMMETRIC_KV_BACKENDS of arg_groups/kv_cache_hook.py).
  bool narrow_values = false;
  bool linear_layers = false;  // runs beside gated delta-net layers on Blackwell too (Qwen3-Next, Qwen3.5)
  // Takes its shapes from the first layer, which then must have attention; SGLang refuses it for LFM2, whose
  // first layers are convolutions (0.5.23: arg_groups/model_hook.py).
  bool looks_at_first_layer = false;
  bool dual_chunk = false;                 // for models with dual chunk attention, and for them only
  bool sparse = false;                     // for models whose indexer chooses tokens, and for them only
  bool compressed = false;                 // for models that attend to compressed tokens, and for them only
  bool fp8_e5m2 = true;                    // of the fp8 formats, this one too
  GpuGenerations fp8_besides{};            // where it reads an fp8 cache, whatever the matrices say
  GpuGenerations fp8_by_default{};         // where an open --kv-cache-dtype means fp8_e4m3
  bool eager_deepseek_v3_prefill = false;  // SGLang 0.5.23 captures no prefill of that architecture with it
  // What SGLang leaves of --mem-fraction-static where the context is longer than 8,192 tokens.
  double long_context_memory = 1;
  DraftExtendGraphs draft_extend_graphs = DraftExtendGraphs::kInV1;
  bool refuses_trees = false;  // of drafts, in either half of a pair
  bool paged_trees = false;    // verifies those of MHA models on pages of more than one token
  FreshDecode fresh_decode = FreshDecode::kNone;
  // SGLang 0.5.23 decodes Qwen3-VL with it on a large Hopper GPU, for which it was profiled.
  bool decodes_profiled_qwen3_vl = false;
  // Chosen beside states that are cached without snapshots, it turned the radix cache off before 0.5.16.
  bool uncaches_states = false;
  // Of its calibration in reports: whether it says that planning a pass has a price that was not measured,
  // and constants of the host in its price ("attention.NAME.CONSTANT"): of either half, and of decode.
  bool plan_price_assumed = true;
  std::string_view host_constant{};
  std::array<std::string_view, 2> decode_constants{};
  // Where its kernels read no fp8 cache.
  GpuGenerations no_fp8_prefill{}, no_fp8_decode{};
  // Pages of the pool that SGLang gives it, where the matrices say that its kernels take any.
  PageSizes pool_pages{};
  // The same beside layers that attend to blocks of 128 tokens, where they are others; and whether it has
  // pages of so many there, where it takes any and --page-size says nothing (model_overrides/minimax_m3.py).
  PageSizes block_sparse_pages{};
  bool pages_of_blocks = false;
  PageSizes xpu_pool_pages{};  // on Intel's GPUs, where they are others; any: the same

  // How it plans passes (planned_backend.h).
  std::uint32_t plan_kernels = 0;     // small ones that fill lengths, sums and page tables, once a pass
  std::string_view extend_kernels{};  // the backend whose kernels serve its extends; empty: its own
  // Its decode kernel takes several query tokens of a request, as more rows of its heads, and so verifies
  // drafts; else the extend kernel does.
  bool verifies_by_decoding = false;
  MlaRule mla_rule{};
  BesideHostKernels beside_host_kernels = BesideHostKernels::kServes;

  constexpr const GpuGenerations& devices(bool mla) const {
    return mla && !mla_generations.empty() ? mla_generations : generations;
  }
};

// What SGLang looks at where it chooses a backend itself: the device, and what the model asks of its
// attention.
struct Selection {
  GpuGeneration generation = GpuGeneration::kHopper;
  bool mla = false;
  bool sliding_window = false;      // of some layers
  bool sinks = false;               // gpt-oss
  bool attention_chunk = false;     // Llama 4
  bool wide_heads = false;          // of more than 256 elements, in some layers (gemma 4)
  bool narrow_values = false;       // narrower than the keys (MiMo V2: 128 and 192 elements)
  bool linear_layers = false;       // gated delta-net layers between those with attention
  bool short_convolutions = false;  // LFM2's layers, the first of them among these
  bool dual_chunk = false;          // dual_chunk_attention_config
  bool sparse = false;              // an indexer chooses the tokens (DeepSeek-V3.2, GLM-5)
  bool compressed = false;          // attends to compressed tokens (DeepSeek V4)
  bool no_flashinfer = false;       // SGLang refuses it for the model's class (OLMo, EXAONE 4)
  bool block_sparse = false;        // an indexer chooses blocks of tokens in some layers (MiniMax M3)
  bool fp8_e4m3_named = false;      // by --kv-cache-dtype
  // KV heads that the config names, of a rank (ModelConfig.get_num_kv_heads); 0: not known.
  std::uint32_t kv_heads = 0;
  // Speculative decoding: guesses for each token of the drafts that are verified (1: a chain; 0: no
  // speculation), the flag that says how many, and whether SGLang knew that they are one or more before it
  // chose the backend.
  std::uint32_t spec_topk = 0;
  std::string_view topk_flag = "--speculative-eagle-topk";
  bool spec_topk_given = false;
  // --speculative-attention-mode prefill: drafts are made and verified by the backend of prefill.
  bool verifies_with_prefill = true;

  // Of MLA models on AMD's GPUs, those that SGLang leaves to aiter (model_override_base.py).
  bool aiter_heads() const { return kv_heads == 16 || kv_heads == 128; }
};

// Whether SGLang decodes with it: fa4, for prefill only in its documentation, is its choice on SM100 where
// trtllm_mha does not take a model's values (model_override_base.py, model_overrides/mimo_v2.py).
constexpr bool prefills_only(const BackendRow& row, const Selection& selection) {
  return row.prefill_only && !selection.block_sparse && !(selection.narrow_values && row.narrow_values);
}

struct BackendDescription {
  BackendRow row;
  std::unique_ptr<AttentionBackend> (*create)(const BackendRow& row, const proto::HardwareProfile& profile,
                                              std::uint32_t page_size);
  // Why SGLang chooses this backend where none is named, for a sentence; empty where it does not. The first
  // of the list that has a reason and can serve the model on the device is chosen.
  std::string_view (*chosen_for)(const Selection& selection) = nullptr;
};

// The `create` of a backend whose class takes these three, as PlannedBackend does.
template <typename Backend>
std::unique_ptr<AttentionBackend> create_backend(const BackendRow& row, const proto::HardwareProfile& profile,
                                                 std::uint32_t page_size) {
  return std::make_unique<Backend>(row, profile, page_size);
}

}  // namespace tpsim::attention
