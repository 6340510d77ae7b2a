// Which backend is chosen where the user names none.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "attention/selection/registry.h"
#include "proto/base/error.h"

namespace tpsim::attention {
namespace {

// ": ascend has no sliding-window attention, which this model's layers need": of the backends that run on the
// device in the model's form.
std::string what_hinders(const Selection& selection) {
  std::string text;
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    const bool of_form = selection.sparse ? row.sparse : selection.mla ? row.has_mla : row.has_mha;
    if (!of_form || row.dual_chunk != selection.dual_chunk || row.prefill_only) continue;
    if (row.devices(selection.mla).contains(selection.generation) || selection.sparse || selection.dual_chunk)
      text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", row.name, unfit(row, selection));
  }
  return text;
}

}  // namespace

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
  throw_user_error(
      "--attention-backend: none runs this {} model on a device of kind {}{}; use another --hardware",
      selection.sparse ? "sparse-attention"
      : selection.mla  ? "MLA"
                       : "MHA",
      to_string(selection.generation), what_hinders(selection));
}

}  // namespace tpsim::attention
