#include "scheduler/workload/benchmark_images.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"

namespace tpsim::scheduler {
namespace {

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

// The benchmark draws in this order: counts, input lengths, output lengths, then sizes.
ImageWorkload::ImageWorkload(const ImageOptions& options) {
  if (options.image_count == 0 || options.image_count > kMostImages)
    throw_user_error("--image-count {}: must be a whole number from 1 to {}", options.image_count,
                     kMostImages);
  check(options.text);
  const NumpyRandom counts(options.text.seed);
  NumpyRandom random = counts;
  for (std::uint64_t i = 0; options.random_image_count && i < options.text.num_prompts; ++i)
    random.randint(1, options.image_count);
  const RandomWorkload text(options.text, random, &random);
  outline_ = text.outline();
  outline_.name = outline_.format = "image";
  outline_.images = true;
  read_ = [options, text, counts, sizes = random] {
    return [options, next = text.read(), counts = counts, sizes = sizes,
            next_content = std::uint64_t{0}]() mutable -> std::shared_ptr<const WorkloadRequest> {
      const std::shared_ptr<const WorkloadRequest> bare = next();
      if (bare == nullptr) return nullptr;
      auto request = std::make_shared<WorkloadRequest>(*bare);
      const std::uint64_t count =
          options.random_image_count ? counts.randint(1, options.image_count) : options.image_count;
      const ImageResolution& size = options.resolution;
      for (std::uint64_t k = 0; k < count; ++k) {
        ImageInput image;
        image.width = static_cast<std::uint32_t>(sizes.randint(size.min_width, size.max_width));
        image.height = static_cast<std::uint32_t>(sizes.randint(size.min_height, size.max_height));
        image.content = options.blank ? 0 : ++next_content;
        request->images.push_back(image);
      }
      return request;
    };
  };
}

}  // namespace tpsim::scheduler
