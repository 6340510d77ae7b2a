#include "attention/registry.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "attention/fa3.h"
#include "attention/flashinfer.h"
#include "attention/hybrid_backend.h"
#include "attention/torch_native.h"
#include "attention/triton_backend.h"
#include "proto/base/error.h"
#include "proto/base/nearest.h"

namespace tpsim::attention {
namespace {

constexpr Support kY = Support::kYes;
constexpr Support kN = Support::kNo;
constexpr Support kOne = Support::kPageSizeOneOnly;

// clang-format off
constexpr std::array<BackendRow, 17> kRows = {{
    {.name = "fa3", .title = "FlashAttention 3", .architectures = "hopper", .implemented = true,
     .has_mha = true, .mha_page_sizes = "any", .mha_fp8 = kY, .mha_fp4 = kN, .mha_spec = kY, .mha_spec_topk = kY,
     .sliding_window = kY, .multimodal = kY,
     .has_mla = true, .mla_page_sizes = "any", .mla_fp8 = kN, .mla_fp4 = kN, .mla_chunked_prefix = kY,
     .mla_spec = kY, .mla_spec_topk = kOne},
    {.name = "flashinfer", .title = "FlashInfer", .architectures = "ampere,ada,hopper,blackwell", .implemented = true,
     .has_mha = true, .mha_page_sizes = "any", .mha_fp8 = kY, .mha_fp4 = kN, .mha_spec = kY, .mha_spec_topk = kY,
     .sliding_window = kY, .multimodal = kN,
     .has_mla = true, .mla_page_sizes = "1", .mla_fp8 = kN, .mla_fp4 = kY, .mla_chunked_prefix = kY,
     .mla_spec = kY, .mla_spec_topk = kN},
    {.name = "triton", .title = "Triton", .architectures = "turing,ampere,ada,hopper,blackwell", .implemented = true,
     .has_mha = true, .mha_page_sizes = "1", .mha_fp8 = kN, .mha_fp4 = kY, .mha_spec = kY, .mha_spec_topk = kY,
     .sliding_window = kY, .multimodal = kY,
     .has_mla = true, .mla_page_sizes = "any", .mla_fp8 = kN, .mla_fp4 = kN, .mla_chunked_prefix = kN,
     .mla_spec = kY, .mla_spec_topk = kOne},
    {.name = "torch_native", .title = "Torch Native (SDPA)", .architectures = "turing,ampere,ada,hopper,blackwell",
     .implemented = true, .supports_cuda_graph = false,
     .has_mha = true, .mha_page_sizes = "1", .mha_fp8 = kY, .mha_fp4 = kY, .multimodal = kY},
    {.name = "flex_attention", .title = "FlexAttention (PyTorch)", .architectures = "ampere,ada,hopper,blackwell",
     .supports_cuda_graph = false, .has_mha = true, .mha_page_sizes = "1", .mha_fp4 = kY},
    {.name = "fa4", .title = "FlashAttention 4", .architectures = "blackwell", .prefill_only = true,
     .has_mha = true, .mha_page_sizes = "128", .mha_fp4 = kY, .multimodal = kY,
     .has_mla = true, .mla_page_sizes = "1", .mla_fp4 = kY},
    {.name = "trtllm_mha", .title = "TRTLLM MHA", .architectures = "blackwell",
     .has_mha = true, .mha_page_sizes = "16,32,64", .mha_fp8 = kY, .mha_fp4 = kY, .mha_spec = kY,
     .sliding_window = kY},
    {.name = "dual_chunk_flash_attn", .title = "Dual Chunk FlashAttention", .architectures = "ampere,ada,hopper",
     .has_mha = true, .mha_page_sizes = "any"},
    {.name = "aiter", .title = "AITER (ROCm)", .architectures = "rocm",
     .has_mha = true, .mha_page_sizes = "any", .mha_fp8 = kY, .mha_spec = kY, .mha_spec_topk = kY, .multimodal = kY},
    {.name = "wave", .title = "Wave (ROCm)", .architectures = "rocm", .has_mha = true, .mha_page_sizes = "any"},
    {.name = "ascend", .title = "Ascend (NPU)", .architectures = "npu",
     .has_mha = true, .mha_page_sizes = "any", .multimodal = kY, .has_mla = true, .mla_page_sizes = "128"},
    {.name = "intel_xpu", .title = "Intel XPU", .architectures = "xpu",
     .has_mha = true, .mha_page_sizes = "any", .sliding_window = kY},
    {.name = "intel_amx", .title = "Intel AMX (CPU)", .architectures = "cpu", .has_mha = true, .mha_page_sizes = "1"},
    {.name = "flashmla", .title = "FlashMLA", .architectures = "hopper",
     .has_mla = true, .mla_page_sizes = "64", .mla_fp8 = kY, .mla_fp4 = kY, .mla_chunked_prefix = kY, .mla_spec = kY},
    {.name = "cutlass_mla", .title = "Cutlass MLA", .architectures = "blackwell",
     .has_mla = true, .mla_page_sizes = "128", .mla_fp8 = kY, .mla_fp4 = kY, .mla_chunked_prefix = kY, .mla_spec = kY},
    {.name = "trtllm_mla", .title = "TRTLLM MLA", .architectures = "blackwell",
     .has_mla = true, .mla_page_sizes = "32,64", .mla_fp8 = kY, .mla_fp4 = kY, .mla_chunked_prefix = kY,
     .mla_spec = kY},
    {.name = "nsa", .title = "NSA (DeepSeek V3.2 sparse attention)", .architectures = "hopper,blackwell"},
}};
// clang-format on

template <typename Where>
std::string names_where(Where where) {
  std::string names;
  for (const BackendRow& row : kRows) {
    if (!where(row)) continue;
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

std::string implemented_names() {
  return names_where([](const BackendRow& row) { return row.implemented; });
}

bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

void check_one(const CombinationRequest& request, const std::string& name, bool decode) {
  const BackendRow& row = find_backend(name, request.flag);
  const char* role = decode ? "decode" : "prefill";
  if (!row.implemented) {
    throw_user_error("{} {}: this backend of SGLang is not implemented in tpsim yet; use one of {}",
                     request.flag, name, implemented_names());
  }
  if (decode && row.prefill_only) {
    throw_user_error("{} {}: prefill only; name another backend for decode, as in {}+flashinfer",
                     request.flag, name, name);
  }
  if (!lists(row.architectures, request.architecture)) {
    throw_user_error("{} {}: needs a GPU of {}, and {} is {}; use {}", request.flag, name, row.architectures,
                     request.gpu, request.architecture,
                     choose_backend(request.architecture, request.mla).backend);
  }
  if (request.mla ? !row.has_mla : !row.has_mha) {
    throw_user_error("{} {}: has no {} form", request.flag, name, request.mla ? "MLA" : "MHA");
  }
  if (!request.mla && request.sliding_window && row.sliding_window == Support::kNo) {
    throw_user_error(
        "{} {}: has no sliding-window attention, which this model's layers need ({}); use one of {}",
        request.flag, name, role, names_where([](const BackendRow& other) {
          return other.implemented && other.sliding_window != Support::kNo;
        }));
  }
  // Any page size can be expanded to tokens before the kernel, but for kernels that need theirs.
  const std::string_view pages = request.mla ? row.mla_page_sizes : row.mha_page_sizes;
  const bool fixed = pages != "any" && (request.mla || pages != "1");
  if (fixed && !lists(pages, std::to_string(request.page_size))) {
    throw_user_error("--page-size {}: {} ({}) works on pages of {} tokens only", request.page_size, name,
                     role, pages);
  }
  const Support fp8 = request.mla ? row.mla_fp8 : row.mha_fp8;
  if (request.kv_bytes == 1 && fp8 == Support::kNo) {
    throw_user_error(
        "--kv-cache-dtype fp8: {} cannot read an fp8 KV cache ({}); use --kv-cache-dtype auto, or fa3 or "
        "flashinfer",
        name, role);
  }
}

std::unique_ptr<AttentionBackend> create_one(const std::string& name, const proto::HardwareProfile& profile,
                                             std::uint32_t page_size) {
  if (name == "fa3") return std::make_unique<Fa3Backend>(profile, page_size);
  if (name == "flashinfer") return std::make_unique<FlashInferBackend>(profile, page_size);
  if (name == "triton") return std::make_unique<TritonBackend>(profile, page_size);
  if (name == "torch_native") return std::make_unique<TorchNativeBackend>(profile, page_size);
  find_backend(name, "--attention-backend");
  throw_user_error(
      "--attention-backend {}: this backend of SGLang is not implemented in tpsim yet; use one of {}", name,
      implemented_names());
}

}  // namespace

std::span<const BackendRow> backend_rows() { return kRows; }

const BackendRow& find_backend(const std::string& name, const std::string& flag) {
  std::vector<std::string_view> implemented;
  for (const BackendRow& row : kRows) {
    if (row.name == name) return row;
    if (row.implemented) implemented.push_back(row.name);
  }
  throw_user_error("{} {}: unknown attention backend{} Implemented are {}", flag, name,
                   nearest(name, implemented).empty() ? "." : did_you_mean(name, implemented),
                   implemented_names());
}

BackendPair parse_backend_pair(const std::string& spec, const std::string& flag) {
  const std::size_t plus = spec.find('+');
  BackendPair pair{spec.substr(0, plus), plus == std::string::npos ? spec : spec.substr(plus + 1)};
  find_backend(pair.prefill, flag);
  find_backend(pair.decode, flag);
  return pair;
}

void check_combination(const CombinationRequest& request) {
  check_one(request, request.pair.prefill, false);
  check_one(request, request.pair.decode, true);
}

AutomaticChoice choose_backend(const std::string& architecture, bool mla) {
  if (architecture == "hopper") {
    return {"fa3", "Hopper with CUDA 12.3 or later: fa3 is SGLang's default for MHA and MLA models"};
  }
  if (architecture == "blackwell") {
    return mla ? AutomaticChoice{"flashinfer",
                                 "Blackwell: SGLang's default trtllm_mla is not implemented in tpsim; "
                                 "flashinfer is the nearest"}
               : AutomaticChoice{"flashinfer",
                                 "Blackwell: SGLang's default trtllm_mha is not implemented in tpsim; "
                                 "flashinfer is the nearest"};
  }
  if (mla) return {"triton", "MLA model on a GPU before Hopper: triton is SGLang's default"};
  return {"flashinfer", "MHA model on a GPU before Hopper: flashinfer is SGLang's default"};
}

std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size) {
  const BackendPair pair = parse_backend_pair(spec, "--attention-backend");
  if (pair.prefill == pair.decode) return create_one(pair.prefill, profile, page_size);
  return std::make_unique<HybridAttnBackend>(create_one(pair.prefill, profile, page_size),
                                             create_one(pair.decode, profile, page_size));
}

}  // namespace tpsim::attention
