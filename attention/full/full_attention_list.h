// What follows from the list of kernels of attention without cache or mask.
#pragma once

#include <span>
#include <string_view>

#include "attention/full/full_attention.h"
#include "attention/gpu_generation.h"

namespace tpsim::attention {

// In the order in which --mm-attention-backend's choices are named (attention/full/CMakeLists.txt).
std::span<const FullAttentionDescription* const> full_attention_list();

// SGLang's default on a device.
const FullAttentionDescription& default_full_attention(GpuGeneration generation);

// By name, on a device of that generation. Throws UserError naming --mm-attention-backend where there is none
// or it does not run there.
const FullAttentionDescription& find_full_attention(std::string_view name, GpuGeneration generation,
                                                    std::string_view gpu);

}  // namespace tpsim::attention
