// What follows from the list of attention backends: which names there are, whether a combination can be
// carried out, on which pages, and which backend is chosen when the user names none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "attention/backend_description.h"
#include "attention/gpu_generation.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// In order of preference (attention/backends/CMakeLists.txt).
std::span<const BackendDescription* const> backend_list();
// By name or alias. Throws UserError naming `flag` and the nearest known name.
const BackendDescription& find_backend(const std::string& name, const std::string& flag);
// "fa3", "flashinfer+fa3" …
struct BackendPair {
  std::string prefill;
  std::string decode;
};
BackendPair parse_backend_pair(const std::string& spec, const std::string& flag);

// A deployment, as far as its attention backends care.
struct CombinationRequest : Selection {
  BackendPair pair;
  // The flags that named them, for sentences.
  std::string flag = "--attention-backend";
  std::string decode_flag;  // empty: `flag` named both
  std::string gpu;          // name, for sentences
  // Of the pool; 0: not decided, not looked at (choose_page_size() decides).
  std::uint32_t page_size = 1;
  NumberFormat kv_format = NumberFormat::kBf16;
};
// A sentence that says what is impossible and what would do; empty where the pair can be run. Throws
// UserError for names that no backend has.
std::string obstacle(const CombinationRequest& request);
// Throws UserError with that sentence.
void check_combination(const CombinationRequest& request);
// What keeps a backend from a device and model in either role: a clause
// with the backend as subject ("has no MLA form"); empty where nothing does.
std::string unfit(const BackendRow& row, const Selection& selection);

// Which page size a pair of backends works on.
//
// Sizes that a kernel reads natively bind the pool where the kernel cannot be given single tokens instead: an
// MHA kernel of page size 1 takes tokens of pages of any size, an MLA kernel of page size 1 does not. The
// prefill half of an MLA pair reads the pool through lists of tokens, so only its decode half binds.
//
// Source: the page-size constraints of the newest document in shared/reference; SGLang 0.5.12 server_args.py
// (_handle_attention_backend_compatibility), 0.5.23 arg_groups/overrides.py (_mla_backend_page_constraints,
// _fa4_page_constraint, _intel_xpu_page_constraint), model_overrides/deepseek_v2.py,
// hardware_backend/npu/utils.py.

// Sizes of the pool's pages that a backend takes; any() where it takes all.
PageSizes pool_pages(const BackendRow& row, const Selection& selection);

struct PageChoice {
  std::uint32_t page_size = 1;
  // What was done to the user's --page-size, or that the backend set one; empty where neither.
  std::string note{};
  bool changed = false;  // the user's --page-size was
};
// The page size of a deployment: `given`, or what SGLang sets where that is open or no page of the pair,
// which SGLang changes with a warning. Where the pair takes single tokens only, another given size is left
// alone, for check_combination to refuse. REQUIRES: known names. request.page_size is not read.
PageChoice choose_page_size(const CombinationRequest& request, std::optional<std::uint32_t> given);

// The sentence of a pair, or of a request.page_size, that no page size serves; empty where there is none.
std::string page_obstacle(const CombinationRequest& request);

struct AutomaticChoice {
  std::string backend;
  std::string reason;
};
// Throws UserError where no backend of the list runs there.
AutomaticChoice choose_backend(const Selection& selection);

// `spec` as parse_backend_pair.
std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size);

// SGLang's two support matrices as its documentation prints them, cell for cell, made of the backends' own
// rows.
struct SupportMatrix {
  std::string_view title;            // "MHA Backends"
  std::vector<std::string> columns;  // "Backend", "FP8 KV Cache" …
  struct Line {
    std::string_view backend;        // as --attention-backend spells it
    std::vector<std::string> cells;  // one for each column
  };
  std::vector<Line> lines;  // in the documentation's order
};
SupportMatrix mha_matrix();
SupportMatrix mla_matrix();

}  // namespace tpsim::attention
