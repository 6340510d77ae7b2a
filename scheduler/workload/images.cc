#include "scheduler/workload/images.h"

#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {
namespace {

// `ids`, or where there are none the run `invented`.
void append_markers(const std::vector<std::uint32_t>& ids, kvcache::TokenRun invented,
                    kvcache::TokenSequence& prompt) {
  for (const std::uint32_t id : ids) prompt.append({id, 1});
  if (ids.empty() && invented.length > 0) prompt.append(invented);
}

}  // namespace

ImagePlacer::ImagePlacer(std::string workload, ImageRuleOf rule, std::uint32_t width, std::uint32_t height)
    : workload_(std::move(workload)), rule_(std::move(rule)), width_(width), height_(height) {}

kvcache::TokenRun ImagePlacer::ids_of(const ImageInput& image, std::uint32_t tokens) {
  const auto [found, is_new] = first_id_.try_emplace({image.content, image.width, image.height}, next_id_);
  if (is_new) next_id_ += tokens;
  return {found->second, tokens};
}

void ImagePlacer::place(WorkloadRequest& request) {
  ++requests_;
  if (request.images.empty()) return;
  for (ImageInput& image : request.images) {
    if (image.width > 0) continue;
    if (width_ == 0)
      throw_user_error(
          "--image-resolution: {} says how many images its requests have, and not how large they are; give "
          "it",
          workload_);
    image.width = width_;
    image.height = height_;
  }
  // Markers: the same ids for every image, before and after it.
  constexpr std::uint32_t kMostMarkers = 1024;
  constexpr kvcache::TokenId kBefore = kImageTokenBase - 2 * kMostMarkers;
  constexpr kvcache::TokenId kAfter = kImageTokenBase - kMostMarkers;

  std::vector<ImageTokens> become;
  std::uint64_t added = 0;
  for (const ImageInput& image : request.images) {
    become.push_back(rule_(image.width, image.height));
    added += std::uint64_t{become.back().before} + become.back().tokens + become.back().after;
  }
  // A trace may count its images among the tokens of the prompt: what is left is text, at least one token.
  std::uint64_t text = request.prompt.size();
  if (request.images_in_prompt) text = text > added ? text - added : 1;
  if (text + added > kMaxRequestTokens)
    throw_user_error("request {}: with its images the prompt has {} tokens; {} are the most", requests_,
                     text + added, kMaxRequestTokens);
  kvcache::TokenSequence prompt;
  std::uint64_t done = 0;  // of the text
  const auto append_text = [&](std::uint64_t end) {
    request.prompt.for_each_run(done, end, [&prompt](const kvcache::TokenRun& run) { prompt.append(run); });
    done = end;
  };
  for (std::size_t i = 0; i < request.images.size(); ++i) {
    ImageInput& image = request.images[i];
    if (image.position > text || image.position < done)
      throw_user_error("request {}: image {} stands after {} tokens, and the prompt has {} of them{}",
                       requests_, i + 1, image.position, text,
                       image.position < done ? " before the image before it" : "");
    append_text(image.position);
    append_markers(become[i].before_ids, {kBefore, become[i].before}, prompt);
    image.position = static_cast<std::uint32_t>(prompt.size());
    image.tokens = become[i].tokens;
    prompt.append(ids_of(image, image.tokens));
    append_markers(become[i].after_ids, {kAfter, become[i].after}, prompt);
  }
  append_text(text);
  request.prompt = std::move(prompt);
}

PlacedImages::PlacedImages(const std::shared_ptr<const StreamedWorkload>& bare,
                           const std::function<Place()>& new_reading)
    : StreamedWorkload(
          bare->outline().name, bare->outline().format, bare->outline().notes, [bare, new_reading] {
            return [next = bare->read(), place = new_reading()]() -> std::shared_ptr<const WorkloadRequest> {
              const std::shared_ptr<const WorkloadRequest> request = next();
              if (request == nullptr) return nullptr;
              auto placed = std::make_shared<WorkloadRequest>(*request);
              place(*placed);
              return placed;
            };
          }) {}

std::vector<ImageInput> read_images(const JsonRecord& record, const ImageFields& fields, const Place& place,
                                    std::uint64_t& unnamed) {
  if (!record.has(fields.images)) {
    for (const std::size_t key : {fields.ids, fields.positions}) {
      if (record.has(key))
        place.fail("{} is given and images is not; give both or neither", record.name(key));
    }
    return {};
  }
  const JsonField& images = record.field(fields.images);
  const bool none = images.kind == JsonKind::kUnsigneds && images.values.empty();
  if (images.kind != JsonKind::kPairs && !none)
    place.fail("images is {}; an array of [width, height] in pixels is needed", record.found(fields.images));
  const std::size_t count = images.values.size() / 2;
  if (count > kMostImages) place.fail("the request has {} images; {} are the most", count, kMostImages);
  const auto of_each = [&](std::size_t key) -> const std::vector<std::uint64_t>* {
    if (!record.has(key)) return nullptr;
    const JsonField& field = record.field(key);
    if (field.kind != JsonKind::kUnsigneds || field.values.size() != count)
      place.fail("{} is {}; a whole number for each of the {} images is needed", record.name(key),
                 record.found(key), count);
    return &field.values;
  };
  const std::vector<std::uint64_t>* const ids = of_each(fields.ids);
  const std::vector<std::uint64_t>* const positions = of_each(fields.positions);
  std::vector<ImageInput> out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t width = images.values[2 * i];
    const std::uint64_t height = images.values[2 * i + 1];
    if (width == 0 || height == 0 || width > kMostPixels || height > kMostPixels)
      place.fail("image {} has {}x{} pixels; sides of 1 to {} are needed", i + 1, width, height, kMostPixels);
    ImageInput image;
    image.width = static_cast<std::uint32_t>(width);
    image.height = static_cast<std::uint32_t>(height);
    image.content = ids == nullptr ? unnamed++ : (*ids)[i];
    if (ids != nullptr && image.content >= kUnnamedImages)
      place.fail("image_ids has {}; ids are below 2^63", image.content);
    const std::uint64_t position = positions == nullptr ? 0 : (*positions)[i];
    if (position > kMaxRequestTokens || (i > 0 && position < out.back().position))
      place.fail("image_positions has {} for image {}; they ascend, up to {}", position, i + 1,
                 kMaxRequestTokens);
    image.position = static_cast<std::uint32_t>(position);
    out.push_back(image);
  }
  return out;
}

}  // namespace tpsim::scheduler
