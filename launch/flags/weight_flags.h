// Formats of the weights, and how they are multiplied with.
#pragma once

#include <optional>
#include <string>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct WeightArgs {
  std::optional<std::string> load_format;  // default auto
  std::string dtype = "auto";
  bool disable_shared_experts_fusion = false;
  std::string quantization;               // "": the checkpoint's
  std::string fp8_gemm_backend = "auto";  // or flashinfer_trtllm

  bool dummy_weights() const { return load_format == "dummy"; }
};

void declare_weights(FlagSet& flags, WeightArgs& args);
// Further down in the help.
void declare_shared_experts(FlagSet& flags, WeightArgs& args);
void declare_quantization(FlagSet& flags, WeightArgs& args);
// What modeled execution takes no part of.
void check_modeled_weights(const WeightArgs& args);

}  // namespace tpsim::launch
