// Which backend is chosen where the user names none.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "attention/registry.h"
#include "proto/base/error.h"

namespace tpsim::attention {

AutomaticChoice choose_backend(const Selection& selection) {
  std::string_view wanted;  // SGLang's default, where tpsim has to take another
  for (const BackendDescription* backend : backend_list()) {
    const std::string_view reason = backend->chosen_for == nullptr ? "" : backend->chosen_for(selection);
    if (reason.empty() || !unfit(backend->row, selection).empty()) continue;
    if (backend->implemented()) return {std::string(backend->row.name), std::string(reason)};
    wanted = backend->row.name;
    break;
  }
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    if (!backend->implemented() || row.prefill_only || !unfit(row, selection).empty()) continue;
    return {
        std::string(row.name),
        wanted.empty()
            ? fmt::format("SGLang has no default for this model here; {} is the first that runs", row.name)
            : fmt::format("SGLang's default {} is not implemented in tpsim; {} is the nearest", wanted,
                          row.name)};
  }
  throw_user_error("--attention-backend: no backend of tpsim runs this {} model on a device of kind {}{}",
                   selection.sparse ? "sparse-attention"
                   : selection.mla  ? "MLA"
                                    : "MHA",
                   to_string(selection.generation),
                   wanted.empty() ? "" : fmt::format("; SGLang's {} is not implemented yet", wanted));
}

}  // namespace tpsim::attention
