#include "rank/numeric/vision/tower.h"

#include <algorithm>
#include <array>

namespace tpsim::rank {

extern const TowerFamily kGemma3Tower;
extern const TowerFamily kInternVlTower;
extern const TowerFamily kLlama4Tower;
extern const TowerFamily kQwen25VlTower;
extern const TowerFamily kQwen3VlTower;

std::span<const TowerFamily* const> vision_towers() {
  static constexpr std::array kFamilies = {&kGemma3Tower, &kInternVlTower, &kLlama4Tower, &kQwen25VlTower,
                                           &kQwen3VlTower};
  return kFamilies;
}

const TowerFamily* find_vision_tower(std::string_view architecture) {
  for (const TowerFamily* family : vision_towers()) {
    const auto& known = family->architectures;
    if (std::find(known.begin(), known.end(), architecture) != known.end()) return family;
  }
  return nullptr;
}

}  // namespace tpsim::rank
