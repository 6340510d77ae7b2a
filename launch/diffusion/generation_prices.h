// Prices of requests on one deployment, each shape once.
#pragma once

#include <deque>
#include <utility>

#include "launch/diffusion/resolve.h"

namespace tpsim::launch {

class GenerationPrices {
 public:
  // Both must outlive this.
  GenerationPrices(const Pipeline& pipeline, const ResolvedPipeline& resolved)
      : pipeline_(pipeline), resolved_(resolved) {}

  // Valid as long as this. Throws UserError for a shape that a backend or the VAE cannot serve.
  const Generation& of(const rank::GenerationRequest& shape);
  // The same; throws UserError where it does not fit, too.
  const Generation& fitting(const rank::GenerationRequest& shape);

  const std::deque<std::pair<rank::GenerationRequest, Generation>>& all() const { return prices_; }

 private:
  const Pipeline& pipeline_;
  const ResolvedPipeline& resolved_;
  std::deque<std::pair<rank::GenerationRequest, Generation>> prices_;
};

}  // namespace tpsim::launch
