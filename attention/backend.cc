#include "attention/backend.h"

#include <stdexcept>
#include <string>

namespace tpsim::attention {

AttentionBackend::~AttentionBackend() = default;

const DecodePlan& AttentionBackend::decode_plan(const LayerShape&) {
  throw std::logic_error(std::string(name()) + " prices passes and has no plan to carry out");
}

const ExtendPlan& AttentionBackend::extend_plan(const LayerShape&) {
  throw std::logic_error(std::string(name()) + " prices passes and has no plan to carry out");
}

}  // namespace tpsim::attention
