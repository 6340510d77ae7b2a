#include "scheduler/workload/images.h"

#include <utility>
#include <vector>

#include "proto/base/error.h"

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

}  // namespace tpsim::scheduler
