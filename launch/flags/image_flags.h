// Images: the encoder of the server, and the images of a dataset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/cli/flag_set.h"
#include "launch/flags/load_flags.h"

namespace tpsim::launch {

struct ImageArgs {
  bool enable_multimodal = false;
  std::string mm_attention_backend;  // empty: SGLang's default
  bool mm_enable_dp_encoder = false;
  std::optional<std::uint64_t> vlm_cache_size_mb;
  std::optional<std::uint32_t> image_count;  // default 1
  std::optional<std::string> image_resolution;
  bool random_image_count = false;
  std::string image_content;  // empty: random
};

void declare_image_server(FlagSet& flags, ImageArgs& images);
void declare_image_dataset(FlagSet& flags, ImageArgs& images);
void check_images(const ImageArgs& images, const LoadArgs& load);

}  // namespace tpsim::launch
