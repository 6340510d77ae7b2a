#include "attention/backend_description.h"

namespace tpsim::attention {

std::string PageSizes::text() const {
  if (any()) return "any";
  std::string text;
  for (const std::uint32_t size : list()) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text;
}

}  // namespace tpsim::attention
