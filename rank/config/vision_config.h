// The vision encoder of a model: the numbers of its config.json ("vision_config") and of its image processor
// that decide how many tokens an image becomes and what encoding it costs. Read by read_vision() of
// config_parts.h.
//
// Source: SGLang 0.5.23 models/{qwen2_5_vl,qwen3_vl,gemma3_mm,siglip,mllama4,internvl}.py and
// multimodal/processors; Transformers 5.23 configuration_*.py and image_processing_*.py of these models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::rank {

// How an image becomes patches.
enum class ImageRule : std::uint8_t {
  kSmartResize,   // Qwen-VL: to multiples of a merged patch, within a range of pixels
  kFixed,         // Gemma 3: to a square
  kClosestRatio,  // InternVL: to the grid of square tiles nearest in aspect ratio, and a thumbnail
  kCanvas,        // Llama 4: padded to a grid of square tiles that distorts nothing, and a small copy
};

struct VisionConfig {
  std::string architecture = {};  // of the whole model; InternVL's text model has one of its own
  ImageRule rule = ImageRule::kFixed;
  std::uint32_t num_layers = 0;  // 0: the model has no vision encoder
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t patch_size = 0;      // pixels of a side
  std::uint32_t temporal_patch = 1;  // frames of a patch; an image is repeated
  std::uint32_t merge_size = 1;      // patches of a side that become one token
  std::uint32_t image_size = 0;      // pixels of the side of a tile; 0: sizes vary
  std::uint32_t max_tiles = 1;
  std::uint64_t min_pixels = 0, max_pixels = 0;  // of a resized image
  std::uint32_t window_size = 0;                 // Qwen2.5-VL: pixels of a side that attend together; 0 = all
  std::uint32_t full_attention_layers = 0;       // with windows: layers that attend to all
  bool gated_mlp = false;                        // gate and up projection
  bool class_token = false;                      // a token that is no patch
  bool rotary = false;                           // queries and keys turn
  bool qk_norm = false;                          // InternViT-6B
  bool layer_scale = false;                      // InternViT
  bool flat = false;                             // images are packed into one sequence (flatten_batch)
  bool one_by_one = false;                       // the encoder runs once for each image (Gemma 3)
  bool sharded_positions = false;                // position embeddings are cut over the ranks (Qwen3-VL)
  bool rms_norm = false;                         // of layers, not layer norms (InternViT-6B, Qwen2.5-VL)
  bool qkv_bias = true;
  bool transposed_shuffle = false;    // InternVL's ps_version v1: merged patches stand column by column
  bool both_ways = false;             // the text model lets an image's tokens see each other (Gemma 3)
  std::uint32_t computed_layers = 0;  // of num_layers, those whose result is read; 0: all
  float norm_eps = 1e-6F;
  double rope_theta = 10000;
  // Llama 4, ids of the vocabulary: between tiles of a row, after a row, before the small copy; 0: unknown.
  std::uint32_t tile_column_id = 0, tile_row_id = 0, small_copy_id = 0;
  std::uint32_t position_embeddings = 0;
  // The projector: merged patches of projector_input elements through one or two layers to out_hidden_size.
  std::uint32_t projector_input = 0;
  std::uint32_t projector_hidden = 0;  // 0: one layer
  std::uint32_t second_projector = 0;  // Llama 4: width between the adapter and a last layer; 0: none
  std::uint32_t out_hidden_size = 0;   // of the text model
  std::uint32_t deepstack = 0;         // Qwen3-VL: further projectors, of layers in between
  bool projector_sharded = false;
  // Tokens of the text around an image's own, its markers.
  std::uint32_t markers_before = 0, markers_after = 0;
  // Whether SGLang serves images unless --enable-multimodal says so (mm_disabled_models of model_config.py).
  bool on_by_default = true;
  bool data_parallel = false;       // the model's class has --mm-enable-dp-encoder
  bool attention_parallel = false;  // and can be cut over the ranks of one data-parallel rank (Qwen3-VL)

  // What numeric execution needs besides shapes (rank/numeric/vision).
  std::uint32_t mlp_width = 0;  // as the checkpoint has it; intermediate_size is rounded up for kernels
  std::string hidden_act = "gelu";
  std::vector<std::uint32_t> full_attention_at = {};  // with windows: the layers that attend to all
  std::vector<std::uint32_t> deepstack_at = {};       // layers after which a further projector reads
  // Tokens of the vocabulary that are an image's markers; empty: the config does not name them.
  std::vector<std::uint32_t> marker_ids_before = {}, marker_ids_after = {};

  // What the server makes of it (launch/deployment/images.h): nothing is served unless `served`.
  bool served = false;
  bool replicated = false;               // --mm-enable-dp-encoder
  std::string_view attention_backend{};  // --mm-attention-backend
  bool encoded_by_request = false;       // else all images of a pass together
  std::uint64_t cache_bytes = 0;         // embeddings that a rank keeps
  std::uint64_t reserved_bytes = 0;      // of each GPU, that the KV pool lacks

  bool present() const { return num_layers > 0; }
  std::uint32_t head_dim() const { return hidden_size / num_heads; }
  // Bytes of the embeddings of one image token.
  std::uint64_t embedding_token_bytes() const { return std::uint64_t{2} * out_hidden_size * (1 + deepstack); }
};

}  // namespace tpsim::rank
