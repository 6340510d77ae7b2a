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

const SparsePlan& AttentionBackend::sparse_plan(const LayerShape&) {
  throw std::logic_error(std::string(name()) + " has no plan for sparse attention");
}

}  // namespace tpsim::attention
