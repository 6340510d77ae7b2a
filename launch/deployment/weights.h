// The weights of a deployment: their format, where the GPU can multiply it, and whether dummy ones decide
// which experts the tokens visit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/rows.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"

namespace tpsim::launch {

// --model-path, as its weights are to be served. Throws UserError as rank::load_model_config() does.
rank::ModelConfig load_model(const ModelArgs& model, const WeightArgs& weights);

// `hardware` with the matrix kernels that --fp8-gemm-backend names. Throws UserError where it has them not.
proto::HardwareProfile with_gemm_kernels(const WeightArgs& args, proto::HardwareProfile hardware);

struct Weights {
  rank::QuantizationConfig quantization;
  std::uint32_t experts_in_use = 0;  // as ModeledForward::Options
  std::vector<std::string> warnings;
};
// Throws UserError for a format that neither the checkpoint nor the GPU has.
Weights resolve_weights(const ServerArgs& args, const proto::HardwareProfile& hardware,
                        const rank::ModelConfig& model);

// `model`: with these weights' format.
void write_weights(const ServerArgs& args, const Weights& weights, const rank::ModelConfig& model,
                   Rows& rows);

}  // namespace tpsim::launch
