// CLIP's text model, of which FLUX.1 reads the pooled output: the last hidden state where a text ends.
//
// Source: arXiv 2103.00020; names of tensors and where a text ends as Transformers 5.24 has them
// (models/clip). Checkpoints of Transformers before 5 have "text_model." before the names.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/text_encoder.h"

namespace tpsim::rank {
namespace {

struct ClipLayer {
  TowerNorm norm1, norm2;
  TowerLinear q, k, v, out, up, down;
};

class ClipEncoder : public TextEncoder {
 public:
  ClipEncoder(const ConfigReader& config, const TensorSource& source)
      : width_(config.number_or("hidden_size", 512)),
        heads_(config.number_or("num_attention_heads", 8)),
        positions_(config.number_or("max_position_embeddings", 77)),
        end_(config.number_or("eos_token_id", 49407)),
        activation_(tower_activation(config.text("hidden_act", "quick_gelu"), config.where())) {
    if (width_ % heads_ != 0)
      throw_user_error("{}: num_attention_heads {} does not divide hidden_size {}", config.where(), heads_,
                       width_);
    const auto eps = static_cast<float>(config.real("layer_norm_eps", 1e-5, 0, 1));
    const std::uint32_t ffn = config.number_or("intermediate_size", 2048);
    const TowerReader reader(source, WeightType::kFp32, {"text_model.", ""},
                             "embeddings.token_embedding.weight");
    tokens_ =
        reader.tensor("embeddings.token_embedding.weight", {config.number_or("vocab_size", 49408), width_});
    places_ = reader.tensor("embeddings.position_embedding.weight", {positions_, width_});
    for (std::uint32_t i = 0; i < config.number_or("num_hidden_layers", 12); ++i) {
      const std::string at = "encoder.layers." + std::to_string(i) + ".", met = at + "self_attn.";
      const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
        return reader.whole(name, outputs, {inputs}, /*bias=*/true);
      };
      layers_.push_back({.norm1 = reader.norm(at + "layer_norm1", width_, eps),
                         .norm2 = reader.norm(at + "layer_norm2", width_, eps),
                         .q = linear(met + "q_proj", width_, width_),
                         .k = linear(met + "k_proj", width_, width_),
                         .v = linear(met + "v_proj", width_, width_),
                         .out = linear(met + "out_proj", width_, width_),
                         .up = linear(at + "mlp.fc1", ffn, width_),
                         .down = linear(at + "mlp.fc2", width_, ffn)});
    }
    norm_ = reader.norm("final_layer_norm", width_, eps);
  }

  bool pooled() const override { return true; }
  std::vector<float> rows(const PromptTokens& tokens, Collectives& /*ranks*/,
                          ThreadPool& pool) const override {
    refuse_padding(tokens);
    const std::vector<std::uint32_t>& ids = tokens.ids;
    if (ids.size() > positions_)
      throw_user_error("{} tokens: max_position_embeddings is {}", ids.size(), positions_);
    const auto count = static_cast<std::uint32_t>(ids.size());
    std::vector<float> x = embedded(ids, tokens_, width_), normed(x.size());
    add(x.data(), places_.data(), x.size());
    const std::uint32_t dim = width_ / heads_;
    const TokenAttention attention{
        .heads = heads_, .dim = dim, .scale = 1 / std::sqrt(static_cast<float>(dim)), .causal = true};
    const auto plus = [&](const std::vector<float>& more) { add(x.data(), more.data(), x.size()); };
    for (const ClipLayer& layer : layers_) {
      layer.norm1.apply(x.data(), count, normed.data(), pool);
      plus(product(layer.out,
                   attention(product(layer.q, normed, pool), product(layer.k, normed, pool),
                             product(layer.v, normed, pool), pool),
                   pool));
      layer.norm2.apply(x.data(), count, normed.data(), pool);
      std::vector<float> hidden = product(layer.up, normed, pool);
      activate(activation_, hidden.data(), hidden.size());
      plus(product(layer.down, hidden, pool));
    }
    const float* const last = x.data() + end_of(ids) * width_;
    std::vector<float> out(width_);
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

  const std::uint32_t width_, heads_, positions_, end_;
  const TowerActivation activation_;
  std::vector<float> tokens_, places_;
  std::vector<ClipLayer> layers_;
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
