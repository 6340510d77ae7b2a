#include "scheduler/workload/benchmark_images.h"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"

namespace tpsim::scheduler {
namespace {

constexpr std::uint32_t kMostPixels = 65536;  // of a side
constexpr std::uint32_t kMostImages = 1000;   // of a request

struct Size {
  std::uint32_t width = 0, height = 0;
};

[[noreturn]] void refuse(const std::string& text) {
  throw_user_error(
      "--image-resolution {}: must be 4k, 1080p, 720p, 360p, HEIGHTxWIDTH with sides of 1 to {} pixels, or "
      "random:HEIGHTxWIDTH-HEIGHTxWIDTH",
      text, kMostPixels);
}

bool read_side(std::string_view text, std::uint32_t& side) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  return error == std::errc() && end == text.data() + text.size() && side >= 1 && side <= kMostPixels;
}

Size read_size(std::string_view text, const std::string& whole) {
  constexpr std::pair<std::string_view, Size> kNamed[] = {
      {"4k", {3840, 2160}}, {"1080p", {1920, 1080}}, {"720p", {1280, 720}}, {"360p", {640, 360}}};
  for (const auto& [name, size] : kNamed) {
    if (text == name) return size;
  }
  const std::size_t x = text.find('x');
  Size size;
  if (x == std::string_view::npos || !read_side(text.substr(0, x), size.height) ||
      !read_side(text.substr(x + 1), size.width))
    refuse(whole);
  return size;
}

}  // namespace

ImageResolution parse_image_resolution(const std::string& text) {
  constexpr std::string_view kRandom = "random:";
  const std::string_view view = text;
  if (!view.starts_with(kRandom)) {
    const Size size = read_size(view, text);
    return {size.width, size.height, size.width, size.height};
  }
  const std::string_view bounds = view.substr(kRandom.size());
  const std::size_t dash = bounds.find('-');
  if (dash == std::string_view::npos) refuse(text);
  const Size least = read_size(bounds.substr(0, dash), text);
  const Size most = read_size(bounds.substr(dash + 1), text);
  if (least.width > most.width || least.height > most.height)
    throw_user_error("--image-resolution {}: the first size must not exceed the second", text);
  return {least.width, least.height, most.width, most.height};
}

Workload make_image_workload(const ImageOptions& options) {
  if (options.image_count == 0 || options.image_count > kMostImages)
    throw_user_error("--image-count {}: must be a whole number from 1 to {}", options.image_count,
                     kMostImages);
  // The benchmark draws in this order: counts, input lengths, output lengths, then sizes.
  NumpyRandom random(options.text.seed);
  std::vector<std::uint32_t> counts(options.text.num_prompts, options.image_count);
  if (options.random_image_count) {
    for (std::uint32_t& count : counts)
      count = static_cast<std::uint32_t>(random.randint(1, options.image_count));
  }
  Workload workload = make_random_workload(options.text, random);
  workload.name = workload.format = "image";
  const ImageResolution& size = options.resolution;
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    for (std::uint32_t k = 0; k < counts[i]; ++k) {
      ImageInput image;
      image.width = static_cast<std::uint32_t>(random.randint(size.min_width, size.max_width));
      image.height = static_cast<std::uint32_t>(random.randint(size.min_height, size.max_height));
      image.content = options.blank ? 0 : ++next;
      workload.requests[i].images.push_back(image);
    }
  }
  return workload;
}

}  // namespace tpsim::scheduler
