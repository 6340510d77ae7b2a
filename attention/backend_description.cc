#include "attention/backend_description.h"

namespace tpsim::attention {

std::string PageSizes::words() const {
  if (any()) return "any";
  std::string words;
  for (std::size_t i = 0; i < count_; ++i)
    words += (i == 0 ? "" : i + 1 == count_ ? " or " : ", ") + std::to_string(sizes_[i]);
  return words;
}

}  // namespace tpsim::attention
