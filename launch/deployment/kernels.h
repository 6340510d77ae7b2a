// Which kernels a deployment's products, experts and sums over ranks run: those that flags name, and of the
// sums what the release does by itself.
#pragma once

#include <string>
#include <vector>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"

namespace tpsim::launch {

// `hardware` with the kernels that --fp8-gemm-backend and --moe-runner-backend name. Throws UserError where
// it has them not.
proto::HardwareProfile with_named_kernels(const KernelArgs& args, proto::HardwareProfile hardware);

struct KernelChoice {
  // Whether FlashInfer's TensorRT-LLM kernels run the experts: as the model's fact of this name.
  rank::TrtllmExperts trtllm_experts = rank::TrtllmExperts::kNone;
  bool fuses_all_reduces = false;
  // Kernels that were asked for and not measured, each with what it is priced by.
  struct Assumed {
    std::string name, source;
  };
  std::vector<Assumed> assumed;
  Notes notes;
};
// `model` with its weights' format. Throws UserError for experts that the kernel does not run.
KernelChoice resolve_kernels(const ServerArgs& args, const proto::HardwareProfile& hardware,
                             const rank::ModelConfig& model, const rank::ParallelLayout& layout);

void write_kernels(const KernelArgs& args, const KernelChoice& kernels, Rows& rows);

}  // namespace tpsim::launch
