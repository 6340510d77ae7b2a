#include "attention/backend.h"

namespace tpsim::attention {

AttentionBackend::~AttentionBackend() = default;

}  // namespace tpsim::attention
