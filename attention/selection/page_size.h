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
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attention/backend_description.h"
#include "attention/selection/registry.h"

namespace tpsim::attention {

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

}  // namespace tpsim::attention
