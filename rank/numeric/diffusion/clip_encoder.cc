// CLIP's text model, of which FLUX.1 reads the pooled output: the last hidden state where a text ends.
//
// Source: arXiv 2103.00020; names of tensors and where a text ends as Transformers 5.24 has them
// (models/clip). Checkpoints of Transformers before 5 have "text_model." before the names.
#include <algorithm>
#include <cstddef>
#include <string>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/clip_layers.h"
#include "rank/numeric/diffusion/text_encoder.h"

namespace tpsim::rank {
namespace {

class ClipEncoder : public TextEncoder {
 public:
  ClipEncoder(const ConfigReader& config, const TensorSource& source)
      : layers_(config, {.width = 512, .heads = 8, .ffn = 2048, .layers = 12}),
        positions_(config.number_or("max_position_embeddings", 77)),
        end_(config.number_or("eos_token_id", 49407)) {
    const std::uint32_t width = layers_.width();
    const TowerReader reader(source, WeightType::kFp32, {"text_model.", ""},
                             "embeddings.token_embedding.weight");
    tokens_ =
        reader.tensor("embeddings.token_embedding.weight", {config.number_or("vocab_size", 49408), width});
    places_ = reader.tensor("embeddings.position_embedding.weight", {positions_, width});
    layers_.read(reader, layers_.layers());
    norm_ = reader.norm("final_layer_norm", width, layers_.eps());
  }

  bool pooled() const override { return true; }
  std::vector<float> rows(const PromptTokens& tokens, Collectives& /*ranks*/,
                          ThreadPool& pool) const override {
    refuse_padding(tokens);
    const std::vector<std::uint32_t>& ids = tokens.ids;
    if (ids.size() > positions_)
      throw_user_error("{} tokens: max_position_embeddings is {}", ids.size(), positions_);
    const std::uint32_t width = layers_.width();
    std::vector<float> x = embedded(ids, tokens_, width);
    add(x.data(), places_.data(), x.size());
    layers_.forward(x, /*causal=*/true, pool);
    const float* const last = x.data() + end_of(ids) * width;
    std::vector<float> out(width);
    norm_.apply(last, 1, out.data(), pool);
    return out;
  }

 private:
  // The first end token, or the first token without one; 2 was written into configs whose end token is that
  // of the highest number.
  std::size_t end_of(std::span<const std::uint32_t> ids) const {
    const auto at = end_ == 2 ? std::ranges::max_element(ids) : std::ranges::find(ids, end_);
    return at == ids.end() ? 0 : static_cast<std::size_t>(at - ids.begin());
  }

  ClipLayers layers_;
  const std::uint32_t positions_, end_;
  std::vector<float> tokens_, places_;
  TowerNorm norm_;
};

std::unique_ptr<TextEncoder> load_clip(const ConfigReader& config, const TensorSource& source,
                                       const std::string& pipeline, const Collectives& /*ranks*/) {
  if (pipeline != "FluxPipeline")
    throw_user_error(
        "{}: key \"model_type\" is clip_text_model, which is computed of a FluxPipeline alone, "
        "not of a {}",
        config.where(), pipeline);
  return std::make_unique<ClipEncoder>(config, source);
}

}  // namespace

extern const TextEncoderFamily kClipEncoder;
const TextEncoderFamily kClipEncoder = {.model_types = {"clip_text_model"}, .load = load_clip};

}  // namespace tpsim::rank
