// The model that is served: how much of a request it may see, the format of its weights, where the GPU can
// multiply it, and whether dummy ones decide which experts the tokens visit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"

namespace tpsim::launch {

// --model-path, as its weights are to be served. Throws UserError as rank::load_model_config() does.
rank::ModelConfig load_model(const ServerArgs& args);

// Tokens of prompt and output together. Throws UserError for more than the model was made for.
std::uint32_t resolve_context_length(const ModelArgs& args, const rank::ModelConfig& model);

struct Weights {
  rank::QuantizationConfig quantization;
  std::uint32_t experts_in_use = 0;  // as ModeledForward::Options
  Notes warnings;
};
// Throws UserError for a format that neither the checkpoint nor the GPU has.
Weights resolve_weights(const ServerArgs& args, const proto::HardwareProfile& hardware,
                        const rank::ModelConfig& model);

// `model`: with these weights' format.
void write_model(const ModelArgs& args, const proto::HardwareProfile& hardware,
                 const rank::ModelConfig& model, const Weights& weights, std::uint32_t context_length,
                 Rows& rows);

}  // namespace tpsim::launch
