// Diffusion transformers by family: which classes and pipelines a family has, which keys of config.json it
// reads, and what a forward is made of. A family is a file of families/ and its name in the list there.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "rank/config/config_reader.h"
#include "rank/diffusion/operators.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::rank {

struct TransformerConfig {
  std::uint32_t heads = 0, head_dim = 0;
  std::uint32_t layers = 0;         // that hold a stream each for image and text, or all
  std::uint32_t single_layers = 0;  // of one stream (FLUX)
  std::uint32_t refiner_layers = 0;
  std::uint64_t ffn = 0;
  std::uint64_t in_channels = 16, out_channels = 16;
  std::uint64_t text_dim = 4096, pooled_dim = 0, image_dim = 0, frequencies = 256;
  bool guidance_embedded = false, qk_norm = true, token_timesteps = false;
  std::uint32_t patch = 2;
  std::uint32_t audio_heads = 0, audio_head_dim = 0;
  std::uint64_t audio_channels = 0;
  std::uint64_t width() const { return std::uint64_t{heads} * head_dim; }
};

// Of one forward on one GPU. Rows are those of all samples, tokens those of one.
struct PassShape {
  double batch = 1;
  std::array<std::uint32_t, 3> grid{};  // latent frames, rows, columns after patching; zeros: an image
  double tokens = 0;                    // of all GPUs, padded so that they divide
  double text = 0, image_context = 0, audio = 0;
  double rows = 0, text_rows = 0;  // of this GPU
};

// What a text or image encoder of the pipeline is asked.
struct EncoderUse {
  std::string_view component;
  std::uint32_t tokens = 0;  // it reads, padded; 0: the prompt and `template_tokens`
  std::uint32_t template_tokens = 0;
  std::uint32_t bytes = 2;  // of a weight, as SGLang loads it
  double layers_share = 1;  // run, of the model's own
};

// A class that a model_index.json may name.
struct PipelineRow {
  std::string_view class_name;
  bool video = false, image_input = false, needs_image = false;
  SamplingDefaults defaults{};
  std::uint32_t text = 512;  // that the transformer sees, padded; 0: the prompt and `text_extra`
  std::uint32_t text_extra = 0, text_multiple = 1;
  std::uint32_t image_tokens = 0;  // of an image encoder, beside them
  bool reference_tokens = false;   // input images become tokens of the sequence
  std::span<const EncoderUse> encoders{};
  std::uint32_t vae_bytes = 2, vae_decode_bytes = 2;  // of a weight of the VAE; of an element as it decodes
  double image_shown = 0;                             // pixels of an input image as the text encoder sees it
  bool vae_encodes = true;                            // SGLang loads the VAE's encoder, too
  bool autocast = false;  // the VAE decodes under torch.autocast (enable_autocast of the pipeline's config)
  bool encodes_frames = false;      // the VAE encodes as many frames as are made (Wan's image to video)
  std::uint32_t steps_skipped = 0;  // of the last ones, which are no forward (Z-Image: 1)
};

// KeptModules of families whose modulation SGLang does not quantise, either.
inline constexpr KeptModules kModulationIsKept = {.modules = KeptModules::bit(Module::kOutside) |
                                                             KeptModules::bit(Module::kModulation)};

struct TransformerFamily {
  std::span<const std::string_view> classes;
  std::span<const PipelineRow> pipelines;
  // Throws UserError.
  void (*read)(const ConfigReader& config, TransformerConfig& transformer) = nullptr;
  void (*write)(const TransformerConfig& transformer, const PassShape& shape, OperatorList& list) = nullptr;
  bool cross_attention = false;  // to the text; else joint attention
  bool shards_text = true;       // sequence parallelism shards the text of joint attention, too
  // Products whose layers SGLang gives no quant_config: in 16 bit whatever the checkpoint.
  KeptModules kept = {.modules = KeptModules::bit(Module::kOutside)};
};

std::span<const TransformerFamily* const> transformer_families();

}  // namespace tpsim::rank
