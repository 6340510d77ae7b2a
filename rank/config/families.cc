#include "rank/config/families.h"

namespace tpsim::rank {

FoundArchitecture find_architecture(std::string_view name) {
  for (const ModelFamily* family : model_families()) {
    for (const Architecture& row : family->architectures) {
      if (row.name == name) return {family, &row};
    }
  }
  return {};
}

const VisionArchitecture* find_vision_architecture(std::string_view name) {
  for (const ModelFamily* family : model_families()) {
    for (const VisionArchitecture& row : family->vision) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

}  // namespace tpsim::rank
