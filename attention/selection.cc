// Which backend is chosen where the user names none.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "attention/registry.h"
#include "proto/base/error.h"

namespace tpsim::attention {

AutomaticChoice choose_backend(const Selection& selection) {
  for (const BackendDescription* backend : backend_list()) {
    const std::string_view reason = backend->chosen_for == nullptr ? "" : backend->chosen_for(selection);
    if (!reason.empty() && unfit(backend->row, selection).empty())
      return {std::string(backend->row.name), std::string(reason)};
  }
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    if (row.prefill_only || !unfit(row, selection).empty()) continue;
    return {std::string(row.name),
            fmt::format("SGLang has no default for this model here; {} is the first that runs", row.name)};
  }
  throw_user_error("--attention-backend: no backend of tpsim runs this {} model on a device of kind {}",
                   selection.sparse ? "sparse-attention"
                   : selection.mla  ? "MLA"
                                    : "MHA",
                   to_string(selection.generation));
}

}  // namespace tpsim::attention
