// The model that is served and how much of a request it may see.
#pragma once

#include <cstdint>

#include "launch/deployment/rows.h"
#include "launch/flags/model_flags.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"

namespace tpsim::launch {

// Tokens of prompt and output together. Throws UserError for more than the model was made for.
std::uint32_t resolve_context_length(const ModelArgs& args, const rank::ModelConfig& model);

void write_model(const ModelArgs& args, const proto::HardwareProfile& hardware, std::uint32_t context_length,
                 Rows& rows);

}  // namespace tpsim::launch
