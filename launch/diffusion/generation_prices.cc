#include "launch/diffusion/generation_prices.h"

#include "launch/diffusion/request_queue.h"
#include "proto/base/error.h"

namespace tpsim::launch {

const Generation& GenerationPrices::of(const rank::GenerationRequest& shape) {
  for (const auto& [known, generation] : prices_) {
    if (known.outputs == shape.outputs && alike(known, shape)) return generation;
  }
  return prices_.emplace_back(shape, price(pipeline_, resolved_, shape)).second;
}

const Generation& GenerationPrices::fitting(const rank::GenerationRequest& shape) {
  const Generation& generation = of(shape);
  if (!generation.fits)
    throw_user_error("{}: {} x {}, {} frames, {} outputs together: {}",
                     shape.outputs > 1 ? "--batching-max-size" : "--hardware", shape.width, shape.height,
                     shape.frames, shape.outputs, generation.too_large);
  return generation;
}

}  // namespace tpsim::launch
