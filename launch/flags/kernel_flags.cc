#include "launch/flags/kernel_flags.h"

#include "launch/cli/flag_values.h"

namespace tpsim::launch {

void declare_kernels(FlagSet& flags, KernelArgs& args) {
  flags.add_value("--moe-runner-backend", "KERNEL",
                  "what runs the experts: auto (as SGLang chooses by model, format and GPU), triton, "
                  "triton_kernel, flashinfer_trtllm, flashinfer_trtllm_routed, flashinfer_cutlass, "
                  "flashinfer_mxfp4, flashinfer_cutedsl, cutlass, marlin, deep_gemm or aiter (default auto)",
                  word({"auto", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_trtllm_routed",
                        "flashinfer_cutlass", "flashinfer_mxfp4", "flashinfer_cutedsl", "cutlass", "marlin",
                        "deep_gemm", "aiter"},
                       args.moe_runner_backend));
  flags.add_value("--fp8-gemm-backend,--fp8-gemm-runner-backend", "KERNEL",
                  "what multiplies with weights of fp8 in blocks: auto (DeepGEMM where a GPU has it), "
                  "deep_gemm, flashinfer_trtllm, on Blackwell, flashinfer_cutlass, flashinfer_deepgemm, "
                  "cutlass, triton or aiter (default auto)",
                  word({"auto", "deep_gemm", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_deepgemm",
                        "cutlass", "triton", "aiter"},
                       args.fp8_gemm_backend));
  flags.add_value(
      "--fp4-gemm-backend,--fp4-gemm-runner-backend", "KERNEL",
      "what multiplies with weights of nvfp4: auto, flashinfer_cudnn, flashinfer_cutedsl, "
      "flashinfer_cutlass or flashinfer_trtllm (default auto)",
      word({"auto", "flashinfer_cudnn", "flashinfer_cutedsl", "flashinfer_cutlass", "flashinfer_trtllm"},
           args.fp4_gemm_backend));
  flags.add_switch(
      "--disable-flashinfer-autotune",
      "FlashInfer's kernels keep their own choice of tiles, whose times nobody measured: they are "
      "priced as tuned",
      args.disable_flashinfer_autotune);
  flags.add_switch("--enable-flashinfer-allreduce-fusion",
                   "sums over --tp and the norms behind them are one kernel of FlashInfer (default: for the "
                   "models that the release does it for)",
                   args.enable_flashinfer_allreduce_fusion);
  flags.add_value("--flashinfer-allreduce-fusion-backend", "KERNEL",
                  "the same, as SGLang 0.5.14 says it: auto, trtllm or mnnvl",
                  word({"auto", "trtllm", "mnnvl"}, args.flashinfer_allreduce_fusion_backend));
  flags.add_switch("--enforce-disable-flashinfer-allreduce-fusion", "never",
                   args.enforce_disable_flashinfer_allreduce_fusion);
}

}  // namespace tpsim::launch
