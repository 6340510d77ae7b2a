// Picks the next token from logits, as SGLang's sampler: temperature, then top-k, then top-p.
#pragma once

#include <cstdint>
#include <span>

#include "proto/forward.pb.h"

namespace tpsim::rank {

// Greedy where temperature is 0 (ties: the lowest id). Otherwise the draw is a function of params.seed() and
// `position` (the length of the sequence so far, in tokens) alone: the same for any batch, any number of
// ranks, and after a retraction. REQUIRES: logits is not empty.
std::uint32_t sample(std::span<const float> logits, const proto::SamplingParams& params,
                     std::uint32_t position);

}  // namespace tpsim::rank
