#include "attention/full/full_attention_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::attention {

const FullAttentionDescription& default_full_attention(GpuGeneration generation) {
  for (const FullAttentionDescription* kernel : full_attention_list()) {
    if (kernel->default_on.contains(generation)) return *kernel;
  }
  throw std::logic_error("no --mm-attention-backend is the default of " + std::string(to_string(generation)));
}

const FullAttentionDescription& find_full_attention(std::string_view name, GpuGeneration generation,
                                                    std::string_view gpu) {
  std::vector<std::string_view> names;
  for (const FullAttentionDescription* kernel : full_attention_list()) {
    names.push_back(kernel->name);
    if (kernel->name != name) continue;
    if (!kernel->devices.contains(generation))
      throw_user_error("--mm-attention-backend {}: runs on {}, and {} is {}; SGLang's default there is {}",
                       name, kernel->devices.names(), gpu, to_string(generation),
                       default_full_attention(generation).name);
    return *kernel;
  }
  const bool others = name == "flashinfer_cudnn" || name == "amx_attn" || name == "xpu_attn";
  throw_user_error("--mm-attention-backend {}: is not {}; use one of {}", name,
                   others ? "in the MultiModal column of SGLang's support matrix and not simulated" : "known",
                   fmt::join(names, ", "));
}

}  // namespace tpsim::attention
