#include "rank/numeric/vision/tower.h"

#include <algorithm>

namespace tpsim::rank {

extern const TowerFamily kGemma3Tower;
extern const TowerFamily kInternVlTower;
extern const TowerFamily kLlama4Tower;
extern const TowerFamily kQwen25VlTower;
extern const TowerFamily kQwen3VlTower;

const TowerFamily* find_vision_tower(std::string_view architecture) {
  for (const TowerFamily* family :
       {&kGemma3Tower, &kInternVlTower, &kLlama4Tower, &kQwen25VlTower, &kQwen3VlTower}) {
    if (std::ranges::count(family->architectures, architecture) > 0) return family;
  }
  return nullptr;
}

}  // namespace tpsim::rank
