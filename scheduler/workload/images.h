// The images of a request: where they stand in its prompt, and the token ids that stand for them.
//
// A trace knows how large images are; how many tokens they become is the model's rule. So a workload is read
// with images beside its prompts, and ImagePlacer puts their tokens in, once the model is known. As in
// SGLang (MultimodalDataItem.set_pad_value), the ids that stand for an image follow from its content alone:
// prompts with equal images in equal places share prefixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kvcache/token_runs.h"
#include "scheduler/workload/json_record.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Ids of images' tokens are from here on, their markers' below.
inline constexpr kvcache::TokenId kImageTokenBase = kvcache::TokenId{1} << 60;

// What an image of some size becomes.
struct ImageTokens {
  std::uint32_t before = 0;  // marker tokens, the same for all images
  std::uint32_t tokens = 0;  // of the image
  std::uint32_t after = 0;   // markers
  // The markers' ids, where they are known; empty: ids that no vocabulary has.
  std::vector<std::uint32_t> before_ids = {}, after_ids = {};
};
using ImageRuleOf = std::function<ImageTokens(std::uint32_t width, std::uint32_t height)>;

// Puts the tokens of images into the prompts of one reading, request by request. Which ids an image becomes
// depends on those before it: memory grows with the number of different images.
class ImagePlacer {
 public:
  // Images of unknown size get `width` x `height` (0: place() throws UserError naming --image-resolution).
  // `workload`: its name, for messages.
  ImagePlacer(std::string workload, ImageRuleOf rule, std::uint32_t width, std::uint32_t height);
  // The next request in order, with or without images. REQUIRES: no image of it has tokens yet. Throws
  // UserError where its prompt becomes longer than kMaxRequestTokens, or an image stands after its end.
  void place(WorkloadRequest& request);

 private:
  kvcache::TokenRun ids_of(const ImageInput& image, std::uint32_t tokens);

  std::string workload_;
  ImageRuleOf rule_;
  std::uint32_t width_, height_;
  std::uint64_t requests_ = 0;  // so far
  // First id of each content at each size, by first appearance: different tokens for different images.
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>, kvcache::TokenId> first_id_;
  kvcache::TokenId next_id_ = kImageTokenBase;
};

// A workload whose images are placed as it is read.
class PlacedImages : public StreamedWorkload {
 public:
  // What is done to each request of a reading, in order.
  using Place = std::function<void(WorkloadRequest&)>;
  // `new_reading` makes that for one reading. Reads `bare` once, for its mistakes and its outline; throws
  // UserError as the places do.
  PlacedImages(const std::shared_ptr<const StreamedWorkload>& bare,
               const std::function<Place()>& new_reading);
};

// The images of one JSON object, as traces and prompt files have them:
//
//   images          [[width, height], …] in pixels
//   image_ids       a number below 2^63 for each, equal for equal images; without it no two are equal
//   image_positions prompt tokens in front of each, ascending; without it all come first
//
// Where a record has these keys:
struct ImageFields {
  std::size_t images = 0, ids = 0, positions = 0;
};
// Contents of images without a name are counted from here on.
inline constexpr std::uint64_t kUnnamedImages = std::uint64_t{1} << 63;
// `unnamed`: the content of the next image without a name. Throws UserError.
std::vector<ImageInput> read_images(const JsonRecord& record, const ImageFields& fields, const Place& place,
                                    std::uint64_t& unnamed);

}  // namespace tpsim::scheduler
