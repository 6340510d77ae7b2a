// What passes between the operators of a layer.
#pragma once

namespace tpsim::rank {

inline constexpr double kElement = 2;  // bytes of an activation (bf16), and of a weight of a vision encoder

}  // namespace tpsim::rank
