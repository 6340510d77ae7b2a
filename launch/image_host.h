// What the host does with the images of a request before the GPU encodes them: SGLang's tokenizer process
// decodes, resizes and cuts them into patches, request by request, and hands the tensors over in shared
// memory; the scheduler copies and hashes them in its loop, which waits for that.
//
// Source: clocks in SGLang 0.5.12 on an H200's machine (16 cores, JPEGs decoded on the GPU, default flags):
// multimodal/processors/base_processor.py (load_mm_data, process_mm_data), managers/mm_utils.py
// (ShmPointerMMData, hash_feature); qwen2.5-vl-7b, qwen3-vl-8b, qwen3-vl-30b-a3b, gemma-3-27b and
// internvl3.5-8b with 1 to 4 images of 0.2 to 2.1 million pixels. Of the 17 settings that are not InternVL's
// the way through the tokenizer process is 5.6 % off in the median, 18 % at worst, the scheduler's part 7.8
// and 19 %. Tensors above 32 MiB get fresh pages of memory each time and cost two to three times as much a
// byte. InternVL's stay on the GPU and are pickled, each image with the tensor of all. Other releases and
// machines were not measured, Llama 4 neither: as Gemma 3.
#pragma once

#include <span>

#include "rank/model/vision_config.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

struct ImageHost {
  double prepare_seconds = 0;  // of the tokenizer process
  double receive_seconds = 0;  // of the scheduler
};

// Of one request. REQUIRES: sides of images are from 1 to rank::kMaxImageSide. Throws UserError as
// rank::image_layout() does.
ImageHost image_host(const rank::VisionConfig& vision, std::span<const scheduler::ImageInput> images);

}  // namespace tpsim::launch
