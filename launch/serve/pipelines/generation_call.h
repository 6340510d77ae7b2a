// What a client asks of a pipeline's server: the bodies of SGLang 0.5.23's /v1/images and /v1/videos
// (runtime/entrypoints/openai/protocol.py, image_api.py and video_api.py of sglang.multimodal_gen).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/diffusion/pipeline_args.h"
#include "launch/serve/wire/http_message.h"

namespace tpsim::launch {

struct GenerationCall {
  enum class Kind : std::uint8_t { kImage, kEdit, kVideo };
  Kind kind = Kind::kImage;
  SamplingAsked sampling;  // what the client says over what the server's flags do
  std::string prompt;
  std::string model;      // empty: the served one
  std::string task_type;  // empty: not said
  std::uint32_t fps = 24;
  bool as_url = false;  // images: response_format
};

// As JSON or a form. What is left out is `defaults`, or SGLang's. Throws Refusal: a field is wrong, or asks
// for what is not simulated.
GenerationCall read_generation(GenerationCall::Kind kind, const HttpRequest& request,
                               const SamplingAsked& defaults);

}  // namespace tpsim::launch
