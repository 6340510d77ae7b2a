#include "launch/flags/image_flags.h"

#include <string_view>
#include <utility>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"
#include "scheduler/workload/benchmark_datasets.h"

namespace tpsim::launch {

void declare_image_server(FlagSet& flags, ImageArgs& images) {
  flags.group("Images");
  flags.add_switch("--enable-multimodal",
                   "encode images for models that SGLang serves as text models otherwise (Gemma 3, Llama 4)",
                   images.enable_multimodal);
  flags.add_value("--mm-attention-backend", "NAME",
                  "attention of the vision encoder: fa3, fa4, triton_attn, sdpa, aiter_attn or ascend_attn "
                  "(default: SGLang's for the GPU)",
                  text(images.mm_attention_backend));
  flags.add_switch(
      "--mm-enable-dp-encoder",
      "the encoder is whole on every rank and ranks share the images (default: it is cut like the model)",
      images.mm_enable_dp_encoder);
  flags.add_value("--vlm-cache-size-mb", "MIB",
                  "embeddings of images that each rank keeps, least recently used first to go; 0 keeps none "
                  "(default: SGLANG_VLM_CACHE_SIZE_MB, else SGLang's 100)",
                  count(images.vlm_cache_size_mb, 0, 1U << 20));
}

void declare_image_dataset(FlagSet& flags, ImageArgs& images) {
  flags.add_value("--image-count", "N", "images of a request of --dataset-name image (default 1)",
                  count(images.image_count, 1, 1000));
  flags.add_value(
      "--image-resolution", "SIZE",
      "of --dataset-name image, and of traces that count images and do not size them: 4k, 1080p, 720p, 360p, "
      "HEIGHTxWIDTH, or random:HEIGHTxWIDTH-HEIGHTxWIDTH (default 1080p; traces: required)",
      [&images](std::string_view, const std::string& value) {
        scheduler::parse_image_resolution(value);
        images.image_resolution = value;
      });
  flags.add_switch("--random-image-count", "requests have from 1 to --image-count images",
                   images.random_image_count);
  flags.add_value(
      "--image-content", "KIND",
      "random, so that no two images are equal, or blank, so that all of a size are (default random)",
      word({"random", "blank"}, images.image_content));
}

void check_images(const ImageArgs& images, const LoadArgs& load) {
  const bool dataset = load.dataset_name == "image";
  for (const auto& [flag, given] :
       {std::pair<std::string_view, bool>{"--image-count", images.image_count.has_value()},
        {"--random-image-count", images.random_image_count},
        {"--image-content", !images.image_content.empty()}}) {
    if (given && !dataset) throw_user_error("{}: is for --dataset-name image", flag);
  }
  if (images.image_resolution && !dataset && load.trace.empty())
    throw_user_error("--image-resolution {}: is for --dataset-name image and for --trace",
                     *images.image_resolution);
  if (images.image_resolution && !dataset && images.image_resolution->starts_with("random:"))
    throw_user_error(
        "--image-resolution {}: the images of a trace have one size; random ones are for --dataset-name "
        "image",
        *images.image_resolution);
}

}  // namespace tpsim::launch
