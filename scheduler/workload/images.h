// The images of a request: where they stand in its prompt, and the token ids that stand for them.
//
// A trace knows how large images are; how many tokens they become is the model's rule. So a workload is read
// with images beside its prompts, and place_images() puts their tokens in, once the model is known. As in
// SGLang (MultimodalDataItem.set_pad_value), the ids that stand for an image follow from its content alone:
// prompts with equal images in equal places share prefixes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kvcache/token_runs.h"
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

// Puts the tokens of all images into the prompts. Images of unknown size get `width` x `height` (0: throws
// UserError naming --image-resolution). REQUIRES: no image has tokens yet. Throws UserError where a prompt
// becomes longer than kMaxRequestTokens, or an image stands behind its prompt's end.
void place_images(Workload& workload, const ImageRuleOf& rule, std::uint32_t width, std::uint32_t height);

bool has_images(const Workload& workload);

}  // namespace tpsim::scheduler
