// For which experts SGLang brings a tuned configuration of its Triton kernel for 16-bit weights. Without one
// the kernel runs with a default block size and costs up to twice as much.
//
// Source: the file names E=…,N=…,device_name=….json of SGLang 0.5.12's
// layers/moe/moe_runner/triton_utils/configs.
#pragma once

#include <cstdint>
#include <string_view>

namespace tpsim::rank {

// `gpu`: a name of the hardware catalogue; `experts` of one rank, each `width` wide on it.
bool has_tuned_experts(std::string_view gpu, std::uint32_t experts, std::uint32_t width);

}  // namespace tpsim::rank
