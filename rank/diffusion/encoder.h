// Text and image encoders of diffusion pipelines.
#pragma once

#include <cstdint>
#include <string>

#include "rank/config/config_reader.h"
#include "rank/diffusion/operators.h"

namespace tpsim::rank {

struct EncoderConfig {
  // T5 and UMT5; CLIP's text model; CLIP's vision model; a language model (Llama, Qwen, Mistral, Gemma).
  enum class Kind : std::uint8_t { kT5, kClip, kClipVision, kLanguage };
  Kind kind{};
  std::uint64_t hidden = 0, ffn = 0, vocab = 0, positions = 0, projection = 0;
  std::uint32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool gated = true, qk_norm = false, qkv_bias = false, tied = true, biased_positions = false;
  double launches = 0;     // kernels of a layer as SGLang's modules launch them
  bool text_only = false;  // SGLang's class has neither head nor tower
  bool selects = false;    // SGLang's class attends through a backend that is chosen
  // The tower of a model that sees images; 0 layers: none.
  std::uint32_t vision_layers = 0, vision_heads = 1, vision_patch = 14, vision_merge = 2;
  std::uint64_t vision_hidden = 0, vision_ffn = 0;
};

// Whether `class_name` is an encoder that read_encoder() knows.
bool is_encoder(const std::string& class_name);
// A config.json. Throws UserError naming the file and the key.
EncoderConfig read_encoder(const std::string& class_name, const ConfigReader& config);
// One pass over `batch` sequences of `tokens`, of which `patches` come from images. Layers come with their
// weights first; what is held outside of them is added to `other`.
void write_encoder(const EncoderConfig& encoder, double batch, double tokens, double patches,
                   OperatorList& list);
// Parameters outside of the layers: embeddings, heads.
double encoder_table_parameters(const EncoderConfig& encoder);
// What of a checkpoint SGLang loads.
EncoderConfig loaded_encoder(EncoderConfig encoder);

}  // namespace tpsim::rank
