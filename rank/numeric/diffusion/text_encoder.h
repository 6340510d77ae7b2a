// Text encoders of pipelines, computed: one file a family (t5_encoder.cc, clip_encoder.cc,
// language_encoder.cc), one list (text_encoder.cc). Cut over the ranks of a group (--tp-size), as SGLang
// 0.5.23 cuts them: heads and columns of MLPs, with sums behind; CLIP is whole on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/collectives.h"
#include "rank/numeric/token_batch.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

struct PromptTokens {
  std::vector<std::uint32_t> ids;
  std::uint32_t padding = 0;  // of them the last ones, which are not attended to
  // What the prompt is about, with tokens of its own among `ids`; its pixels are those of
  // rank/numeric/vision/patches.h.
  std::optional<BatchImage> image = {};
};

class TextEncoder {
 public:
  TextEncoder() = default;
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;
  virtual ~TextEncoder() = default;
  // What the transformer is given of tokens: [ids, width], without those that a pipeline drops; of CLIP
  // [width], of them all. Collective among `ranks`, those of loading, and equal on
  // all. REQUIRES: ids is not empty. Throws UserError for a token beyond the vocabulary, for too many or too
  // few, and for padding of others than language models (pipelines cut it off, or attend to it).
  virtual std::vector<float> rows(const PromptTokens& tokens, Collectives& ranks, ThreadPool& pool) const = 0;
  // Whether they are one, of the prompt as a whole.
  virtual bool pooled() const { return false; }
};

struct TextEncoderFamily {
  std::vector<std::string_view> model_types;  // of config.json
  // `pipeline`: _class_name of model_index.json. Loads what this process has of `ranks`. Throws UserError
  // where a tensor is missing or misshaped, the config or the pipeline asks for what is not computed, or
  // --tp-size does not divide what is cut.
  std::unique_ptr<TextEncoder> (*load)(const ConfigReader& config, const TensorSource& source,
                                       const std::string& pipeline, const Collectives& ranks);
};

// `config`: the component's config.json. Throws UserError naming the file for a model type that is not
// computed, and as TextEncoderFamily::load.
std::unique_ptr<TextEncoder> load_text_encoder(const ConfigReader& config, const TensorSource& source,
                                               const std::string& pipeline, const Collectives& ranks);

// Throws UserError.
void refuse_padding(const PromptTokens& tokens);

// Rows of `table` [vocabulary, width]. Throws UserError for a token beyond it.
std::vector<float> embedded(std::span<const std::uint32_t> ids, const std::vector<float>& table,
                            std::uint32_t width);

// softmax(scale q k^T + bias(head, query, key)) v, in q's shape [tokens, heads x dim]; causal: of keys up to
// the query.
struct TokenAttention {
  std::uint32_t heads = 0, dim = 0;
  float scale = 1;
  bool causal = false;
  std::function<float(std::uint32_t head, std::uint32_t query, std::uint32_t key)> bias = {};  // may be empty

  std::vector<float> operator()(const std::vector<float>& q, const std::vector<float>& k,
                                const std::vector<float>& v, ThreadPool& pool) const;
};

}  // namespace tpsim::rank
