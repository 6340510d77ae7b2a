// What the answers of a backend depend on of the passes before, for a checkpoint (proto/base/archive.h). Most
// backends look at one pass alone, and are none of these.
#pragma once

#include "attention/backend.h"
#include "proto/base/archive.h"

namespace tpsim::attention {

class PassMemory {
 public:
  virtual ~PassMemory() = default;
  virtual void save(StateWriter& state) const = 0;
  virtual void load(StateReader& state) = 0;
};

// Of a backend of either kind.
inline void save_memory(const AttentionBackend& backend, StateWriter& state) {
  if (const auto* const memory = dynamic_cast<const PassMemory*>(&backend)) memory->save(state);
}
inline void load_memory(AttentionBackend& backend, StateReader& state) {
  if (auto* const memory = dynamic_cast<PassMemory*>(&backend)) memory->load(state);
}

}  // namespace tpsim::attention
