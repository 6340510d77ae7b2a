#include "launch/deployment/numeric_execution.h"

#include <optional>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

std::optional<NumericExecution>& linked() {
  static std::optional<NumericExecution> execution;
  return execution;
}

}  // namespace

void link_numeric_execution(const NumericExecution& execution) { linked() = execution; }

const NumericExecution& numeric_execution() {
  if (!linked())
    throw_user_error(
        "--executor numeric: is computed by programs of their own, which are not built here; `./launch/run` "
        "with the same words builds what they need, `ninja -C build` all programs");
  return *linked();
}

}  // namespace tpsim::launch
