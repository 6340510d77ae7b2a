// What Diffusers and Transformers recorded of a pipeline, to compare with.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/numeric/diffusion/latent_shape.h"
#include "rank/numeric/diffusion/text_encoder.h"

namespace tpsim::launch {

// An object in a small file; `kind`: what it is. Throws UserError naming the flag or the file.
rank::Json read_pipeline_json(const std::string& flag, const std::filesystem::path& path,
                              std::string_view kind);

// What one loop is: the rule of rank/numeric/diffusion/seeded_tensor.h makes latents and embeddings.
struct LoopSize {
  std::array<std::uint32_t, 3> latents = {3, 6, 10};  // frames, rows, columns
  std::uint32_t prompt_tokens = 8, steps = 4;         // 0 tokens: as many as the text encoders make
  float guidance = 5;
  std::uint64_t seed = 1;
};
// What Transformers made of the prompt's tokens.
struct EncoderReference {
  std::string folder;  // of the component, in the pipeline's
  rank::PromptTokens tokens;
  std::vector<float> rows;
  rank::PromptTokens negative;  // of the negative prompt, if there is one
};
// What the VAE made of the latents: of pixels [shape] each stride-th.
struct PixelReference {
  rank::LatentShape shape{};
  std::uint32_t stride = 1;
  std::vector<float> values;
};
// Values that Diffusers recorded (tests/references/make_diffusion_references.py): the loop's size comes with
// them, and where there are encoders, the tokens of its prompts.
struct LoopReference {
  rank::LatentShape shape(std::uint32_t channels) const {
    return {channels, size.latents[0], size.latents[1], size.latents[2]};
  }
  LoopSize size;
  std::vector<float> first_pass, latents;
  std::vector<EncoderReference> encoders;
  std::optional<PixelReference> pixels;
};
// Throws UserError naming --reference.
LoopReference read_loop_reference(const std::string& path, std::uint32_t channels);

// The largest difference, over the largest of `wanted`; infinite where one is no number. REQUIRES: as many.
double relative_difference(const std::vector<float>& values, const std::vector<float>& wanted);

}  // namespace tpsim::launch
