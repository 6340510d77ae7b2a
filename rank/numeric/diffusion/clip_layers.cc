#include "rank/numeric/diffusion/clip_layers.h"

#include <cmath>
#include <string>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/text_encoder.h"

namespace tpsim::rank {

ClipLayers::ClipLayers(const ConfigReader& config, const Sizes& otherwise)
    : sizes_{.width = config.number_or("hidden_size", otherwise.width),
             .heads = config.number_or("num_attention_heads", otherwise.heads),
             .ffn = config.number_or("intermediate_size", otherwise.ffn),
             .layers = config.number_or("num_hidden_layers", otherwise.layers)},
      eps_(static_cast<float>(config.real("layer_norm_eps", 1e-5, 0, 1))),
      activation_(tower_activation(config.text("hidden_act", "quick_gelu"), config.where())) {
  if (sizes_.width % sizes_.heads != 0)
    throw_user_error("{}: num_attention_heads {} does not divide hidden_size {}", config.where(),
                     sizes_.heads, sizes_.width);
}

void ClipLayers::read(const TowerReader& reader, std::uint32_t count) {
  const std::uint32_t width = sizes_.width;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string at = "encoder.layers." + std::to_string(i) + ".", met = at + "self_attn.";
    const auto linear = [&](const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
      return reader.whole(name, outputs, {inputs}, /*bias=*/true);
    };
    layers_.push_back({.norm1 = reader.norm(at + "layer_norm1", width, eps_),
                       .norm2 = reader.norm(at + "layer_norm2", width, eps_),
                       .q = linear(met + "q_proj", width, width),
                       .k = linear(met + "k_proj", width, width),
                       .v = linear(met + "v_proj", width, width),
                       .out = linear(met + "out_proj", width, width),
                       .up = linear(at + "mlp.fc1", sizes_.ffn, width),
                       .down = linear(at + "mlp.fc2", width, sizes_.ffn)});
  }
}

void ClipLayers::forward(std::vector<float>& x, bool causal, ThreadPool& pool) const {
  const auto count = static_cast<std::uint32_t>(x.size() / sizes_.width);
  const std::uint32_t dim = sizes_.width / sizes_.heads;
  std::vector<float> normed(x.size());
  const TokenAttention attention{
      .heads = sizes_.heads, .dim = dim, .scale = 1 / std::sqrt(static_cast<float>(dim)), .causal = causal};
  const auto plus = [&](const std::vector<float>& more) { add(x.data(), more.data(), x.size()); };
  for (const Layer& layer : layers_) {
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
}

}  // namespace tpsim::rank
