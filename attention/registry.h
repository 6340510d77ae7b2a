// The attention backends that SGLang documents: what each can do, which are implemented here, and which one
// is chosen when the user names none.
//
// Source: the support matrices, page-size constraints and "Automatic Selection Logic" of SGLang's attention
// backend documentation (the newest in shared/reference), and its list of backend names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

enum class Support : std::uint8_t { kNo, kYes, kPageSizeOneOnly };

// One row of the matrices. A backend without MHA (or MLA) form has has_mha (has_mla) false, and its other
// mha_ (mla_) fields mean nothing.
struct BackendRow {
  std::string_view name{};  // as --attention-backend spells it
  std::string_view title{};
  std::string_view architectures{};  // GPU generations that it runs on, comma-separated; "rocm", "npu" … else
  bool implemented = false;
  bool prefill_only = false;
  bool supports_cuda_graph = true;

  bool has_mha = false;
  std::string_view mha_page_sizes{};  // native: "any", "1", or a list
  Support mha_fp8 = Support::kNo, mha_fp4 = Support::kNo;
  Support mha_spec = Support::kNo, mha_spec_topk = Support::kNo;
  Support sliding_window = Support::kNo, multimodal = Support::kNo;

  bool has_mla = false;
  std::string_view mla_page_sizes{};
  Support mla_fp8 = Support::kNo, mla_fp4 = Support::kNo, mla_chunked_prefix = Support::kNo;
  Support mla_spec = Support::kNo, mla_spec_topk = Support::kNo;
};

std::span<const BackendRow> backend_rows();
// Throws UserError naming `flag` and the nearest known name.
const BackendRow& find_backend(const std::string& name, const std::string& flag);
// "fa3", "flashinfer+fa3" …
struct BackendPair {
  std::string prefill;
  std::string decode;
};
BackendPair parse_backend_pair(const std::string& spec, const std::string& flag);

struct CombinationRequest {
  BackendPair pair;
  std::string flag = "--attention-backend";
  std::string gpu;           // name, for the sentence
  std::string architecture;  // of the GPU
  std::uint32_t page_size = 1;
  std::uint32_t kv_bytes = 2;  // per element: 1 = fp8
  bool mla = false;
  bool sliding_window = false;
};
// Throws UserError with a sentence that says what is impossible and what would do.
void check_combination(const CombinationRequest& request);

struct AutomaticChoice {
  std::string backend;  // implemented
  std::string reason;
};
AutomaticChoice choose_backend(const std::string& architecture, bool mla);

// `spec` as parse_backend_pair. Throws UserError for what is not implemented.
std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size);

}  // namespace tpsim::attention
