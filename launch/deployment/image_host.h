// What the host does with the images of a request before the GPU encodes them: SGLang's tokenizer process
// decodes, resizes and cuts them into patches, request by request, and hands the tensors over in shared
// memory; the scheduler copies and hashes them in its loop, which waits for that.
//
// Source: SGLang 0.5.12 multimodal/processors/base_processor.py (load_mm_data, process_mm_data),
// managers/mm_utils.py (ShmPointerMMData, hash_feature); what that takes on a host is among its constants
// (rank/catalogue/hosts). Tensors above 32 MiB get fresh pages of memory each time and cost two to three
// times as much a byte. InternVL's stay on the GPU and are pickled, each image with the tensor of all. Llama
// 4 was not measured: as Gemma 3.
#pragma once

#include <span>

#include "proto/host.pb.h"
#include "rank/config/vision_config.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

struct ImageHost {
  double prepare_seconds = 0;  // of the tokenizer process
  double receive_seconds = 0;  // of the scheduler
};

// Of one request. REQUIRES: sides of images are from 1 to rank::kMaxImageSide. Throws UserError as
// rank::image_layout() does.
ImageHost image_host(const rank::VisionConfig& vision, const proto::HostProfile::Images& constants,
                     std::span<const scheduler::ImageInput> images);

}  // namespace tpsim::launch
