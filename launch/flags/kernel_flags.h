// Which kernels run a pass's products and sums, where several can.
#pragma once

#include <string>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct KernelArgs {
  std::string moe_runner_backend = "auto";
  std::string fp8_gemm_backend = "auto";
  std::string fp4_gemm_backend = "auto";
  bool disable_flashinfer_autotune = false;
  bool enable_flashinfer_allreduce_fusion = false;
  std::string flashinfer_allreduce_fusion_backend;  // "": not asked for
  bool enforce_disable_flashinfer_allreduce_fusion = false;
};

void declare_kernels(FlagSet& flags, KernelArgs& args);

}  // namespace tpsim::launch
