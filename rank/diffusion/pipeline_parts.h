// The configurations of a pipeline's components.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "rank/diffusion/encoder.h"
#include "rank/diffusion/transformer.h"
#include "rank/diffusion/vae.h"

namespace tpsim::rank {

struct PipelineParts {
  const TransformerFamily* family = nullptr;
  const PipelineRow* row = nullptr;
  std::map<std::string, TransformerConfig, std::less<>> transformers;
  std::map<std::string, EncoderConfig, std::less<>> encoders;
  VaeConfig vae;
  std::string vae_name = "vae";
  std::uint32_t vae_decode_bytes = 2;
  double first_share = 1;  // of the steps, those of the first of two transformers
};

}  // namespace tpsim::rank
