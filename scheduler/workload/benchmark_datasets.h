// The loads of SGLang's serving benchmark with `--dataset-name` random, image, generated-shared-prefix and
// sharegpt: the rules are those of sglang/benchmark/datasets (0.5.23), and so are, for equal seeds, all
// lengths and their order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Names and defaults are the benchmark's.
struct RandomOptions {
  std::uint64_t num_prompts = 1000;
  std::uint64_t random_input_len = 1024;
  std::uint64_t random_output_len = 1024;
  // Lengths are uniform from this share of the length up to the length: 1 = all equal, 0 = from 1 up.
  double random_range_ratio = 0;
  std::uint32_t seed = 1;
};

// Throws UserError that names the flag that is out of range.
void check(const RandomOptions& options);

// Prompts of which no two share a token, all arriving at 0 (offer them with --request-rate or
// --max-concurrency). Lengths are the benchmark's for equal options, seed included, and are drawn as they are
// read.
class RandomWorkload : public StreamedWorkload {
 public:
  // Throws as check() does.
  explicit RandomWorkload(const RandomOptions& options)
      : RandomWorkload(options, NumpyRandom(options.seed), nullptr) {}
  // Of a generator that other things were drawn from before. `after`, unless null, becomes the one after all
  // that this draws.
  RandomWorkload(const RandomOptions& options, NumpyRandom random, NumpyRandom* after);
};

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

// Images in front of a random text, all requests at 0, drawn as they are read; what the benchmark's chat
// template adds besides the images is not counted. With random resolutions sizes are drawn in a row; the
// benchmark, which also draws every pixel, comes to other sizes of the same distribution.
class ImageWorkload : public StreamedWorkload {
 public:
  // Throws UserError naming the flag that is out of range.
  explicit ImageWorkload(const ImageOptions& options);
};

// Field x is the flag --gsp-x; the defaults are the benchmark's.
struct SharedPrefixOptions {
  std::uint64_t num_groups = 64;  // system prompts
  std::uint64_t prompts_per_group = 16;
  std::uint64_t system_prompt_len = 2048;  // tokens
  std::uint64_t question_len = 128;
  std::uint64_t output_len = 256;
  double range_ratio = 1;  // lengths are uniform from this share of the length up to the length
  std::uint64_t num_turns = 1;
  bool ordered = false;  // group after group; false: shuffled
  // Unset: every group gets prompts_per_group prompts. Set: the groups of all prompts are drawn, the k-th
  // group 1/k^zipf_alpha as often as the first.
  std::optional<double> zipf_alpha = {};
  std::uint32_t seed = 1;
};

// Prompts of a system prompt and a question, all at 0; lengths are exact, as the benchmark's are with
// --tokenize-prompt. With several turns each is a conversation without think time, whose later prompts repeat
// what was said and answered. Lengths and order are held, four bytes for each question and twelve for each
// conversation; requests are made as they are read.
class SharedPrefixWorkload : public StreamedWorkload {
 public:
  // Throws UserError that names the flag that is out of range.
  explicit SharedPrefixWorkload(const SharedPrefixOptions& options);
};

}  // namespace tpsim::scheduler
