#include "scheduler/workload/benchmark_images.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/image_limits.h"

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

namespace {

class ImageReader : public RequestReader {
 public:
  ImageReader(const ImageOptions& options, std::unique_ptr<RequestReader> text, NumpyRandom counts,
              NumpyRandom sizes)
      : options_(options), text_(std::move(text)), counts_(std::move(counts)), sizes_(std::move(sizes)) {}

  std::shared_ptr<const WorkloadRequest> next() override {
    const std::shared_ptr<const WorkloadRequest> text = text_->next();
    if (text == nullptr) return nullptr;
    auto request = std::make_shared<WorkloadRequest>(*text);
    const std::uint64_t count =
        options_.random_image_count ? counts_.randint(1, options_.image_count) : options_.image_count;
    const ImageResolution& size = options_.resolution;
    for (std::uint64_t k = 0; k < count; ++k) {
      ImageInput image;
      image.width = static_cast<std::uint32_t>(sizes_.randint(size.min_width, size.max_width));
      image.height = static_cast<std::uint32_t>(sizes_.randint(size.min_height, size.max_height));
      image.content = options_.blank ? 0 : ++next_content_;
      request->images.push_back(image);
    }
    return request;
  }

 private:
  const ImageOptions& options_;
  std::unique_ptr<RequestReader> text_;
  NumpyRandom counts_, sizes_;
  std::uint64_t next_content_ = 0;
};

const ImageOptions& checked(const ImageOptions& options) {
  if (options.image_count == 0 || options.image_count > kMostImages)
    throw_user_error("--image-count {}: must be a whole number from 1 to {}", options.image_count,
                     kMostImages);
  check(options.text);
  return options;
}

NumpyRandom behind_counts(const ImageOptions& options, NumpyRandom random) {
  if (!options.random_image_count) return random;
  for (std::uint64_t i = 0; i < options.text.num_prompts; ++i) random.randint(1, options.image_count);
  return random;
}

}  // namespace

ImageWorkload::ImageWorkload(const ImageOptions& options)
    : options_(checked(options)),
      counts_(options.text.seed),
      text_(options.text, behind_counts(options, counts_)),
      sizes_(text_.random_after()),
      outline_(text_.outline()) {
  outline_.name = outline_.format = "image";
  outline_.images = true;
}

std::unique_ptr<RequestReader> ImageWorkload::read() const {
  return std::make_unique<ImageReader>(options_, text_.read(), counts_, sizes_);
}

}  // namespace tpsim::scheduler
