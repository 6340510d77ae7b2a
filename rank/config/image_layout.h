// What a model makes of one image: the tokens that stand for it in the prompt, and the sequences of patches
// that its encoder attends over.
//
// Rules: Qwen's smart_resize (Transformers' image_processing_qwen2_vl.py), Gemma 3's fixed square, Llama 4's
// canvas (image_processing_llama4.py, processing_llama4.py), InternVL's dynamic_preprocess as SGLang 0.5.23
// has it (multimodal/processors/internvl.py; where two grids are equally near Transformers prefers fewer
// tiles for small images, SGLang always more). image_layout_test.cc compares with recordings of them.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/plan_cost.h"
#include "rank/config/vision_config.h"

namespace tpsim::rank {

struct ImageLayout {
  std::uint32_t before = 0;             // marker tokens of the text in front of it
  std::uint32_t tokens = 0;             // between the markers: its own, and what separates its tiles
  std::uint32_t after = 0;              // marker tokens after it
  std::uint32_t embedded = 0;           // of `tokens`, those that the encoder makes
  std::uint32_t tiles = 1;              // a thumbnail included
  std::uint32_t patches = 0;            // rows of the encoder, class tokens included
  std::uint32_t height = 0, width = 0;  // of a tile as the encoder sees it, pixels
  std::uint32_t grid_columns = 1;       // of a tiled image's tiles, the thumbnail left out
  std::vector<attention::SequenceGroup> sequences;  // rows that attend to each other
  std::vector<attention::SequenceGroup> windows;    // in layers with windows; empty: there are none
};

// Images are from 1 to this many pixels wide and high.
inline constexpr std::uint32_t kMaxImageSide = 65536;

// Throws UserError for a size that the model's processor refuses. REQUIRES: vision.present(), sides from 1 to
// kMaxImageSide.
ImageLayout image_layout(const VisionConfig& vision, std::uint32_t width, std::uint32_t height);

}  // namespace tpsim::rank
