// The load of SGLang's serving benchmark with `--dataset-name image` (sglang/benchmark/datasets/image.py,
// 0.5.23): images and a random text. Text lengths are the benchmark's for equal seeds; what its chat template
// adds besides the images is not counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "scheduler/workload/synthetic.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// --image-resolution: 4k, 1080p, 720p, 360p, HEIGHTxWIDTH, or random:HEIGHTxWIDTH-HEIGHTxWIDTH.
struct ImageResolution {
  std::uint32_t min_width = 1920, min_height = 1080;
  std::uint32_t max_width = 1920, max_height = 1080;
};
// Throws UserError naming --image-resolution.
ImageResolution parse_image_resolution(const std::string& text);

struct ImageOptions {
  RandomOptions text;
  std::uint32_t image_count = 1;  // of a request, or the most with random_image_count
  bool random_image_count = false;
  bool blank = false;  // --image-content blank: images of equal size are equal; else all differ
  ImageResolution resolution;
};

// Images in front of the text, all requests at 0, drawn as they are read. With random resolutions sizes are
// drawn in a row; the benchmark, which also draws every pixel, comes to other sizes of the same distribution.
class ImageWorkload : public StreamedWorkload {
 public:
  // Throws UserError naming the flag that is out of range.
  explicit ImageWorkload(const ImageOptions& options);
};

}  // namespace tpsim::scheduler
