// Text encoders of pipelines, computed: T5 and UMT5 (t5_encoder.cc), whole on every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/linear/thread_pool.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class TextEncoder {
 public:
  TextEncoder() = default;
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;
  virtual ~TextEncoder() = default;
  // What the transformer is given of so many tokens, none of them padding: [ids, width]. REQUIRES: ids is not
  // empty. Throws UserError for a token beyond the vocabulary.
  virtual std::vector<float> rows(std::span<const std::uint32_t> ids, ThreadPool& pool) const = 0;
};

// `config`: the component's config.json. Throws UserError naming the file for a model type that is not
// computed, and for tensors that are missing or misshaped.
std::unique_ptr<TextEncoder> load_text_encoder(const ConfigReader& config, const TensorSource& source);

}  // namespace tpsim::rank
