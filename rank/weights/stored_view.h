// The raw bytes of a checkpoint's tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/weights/stored_type.h"

namespace tpsim::rank {

struct StoredView {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 0;
  const char* data = nullptr;  // may be unaligned; lives as long as the checkpoint
};

}  // namespace tpsim::rank
