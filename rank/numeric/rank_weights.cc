#include "rank/numeric/rank_weights.h"

#include <fmt/format.h>

#include <utility>

#include "rank/numeric/expert_weights.h"
#include "rank/numeric/weight_reader.h"

namespace tpsim::rank {
namespace {

// Multimodal checkpoints keep the text model under a name of its own.
struct Names {
  std::string model;  // before "layers.0…", "embed_tokens…", "norm…"
  std::string head;
};

Names names_of(const TensorSource& source) {
  for (const auto& [model, head] : {std::pair("model.", "lm_head.weight"),
                                    {"language_model.model.", "language_model.lm_head.weight"},
                                    {"model.language_model.", "lm_head.weight"}}) {
    if (source.has(std::string(model) + "embed_tokens.weight")) return {model, head};
  }
  return {"model.", "lm_head.weight"};  // require() says what is missing
}

class Loader {
 public:
  Loader(const ModelConfig& model, const Shard& shard, WeightType type, const TensorSource& source)
      : model_(model), shard_(shard), reader_(source, type), names_(names_of(source)) {}

  RankWeights load() const {
    RankWeights weights;
    weights.shard = shard_;
    weights.embedding = vocabulary(names_.model + "embed_tokens.weight");
    for (std::uint32_t i = 0; i < model_.num_layers; ++i) weights.layers.push_back(layer(i));
    weights.final_norm = reader_.vector(names_.model + "norm.weight", model_.hidden_size);
    if (!model_.tie_word_embeddings) weights.head = vocabulary(names_.head);
    return weights;
  }

 private:
  PackedMatrix vocabulary(const std::string& name) const {
    const std::uint64_t first = std::uint64_t{shard_.tp_rank} * shard_.vocab;
    return reader_.matrix(
        {{name, model_.vocab_size, model_.hidden_size, first, shard_.vocab, 0, model_.hidden_size}});
  }

  LayerWeights layer(std::uint32_t index) const {
    const std::string at = fmt::format("{}layers.{}.", names_.model, index);
    LayerWeights layer;
    layer.input_norm = reader_.vector(at + "input_layernorm.weight", model_.hidden_size);
    layer.post_attention_norm = reader_.vector(at + "post_attention_layernorm.weight", model_.hidden_size);
    if (model_.post_norms) {
      layer.pre_feedforward_norm =
          reader_.vector(at + "pre_feedforward_layernorm.weight", model_.hidden_size);
      layer.post_feedforward_norm =
          reader_.vector(at + "post_feedforward_layernorm.weight", model_.hidden_size);
    }
    if (model_.is_mla()) {
      load_mla(at + "self_attn.", layer);
    } else {
      load_attention(at + "self_attn.", layer);
    }
    if (model_.layers[index].moe) {
      layer.moe = load_moe(model_, shard_, reader_, at);
    } else {
      layer.mlp = load_mlp(reader_, at + "mlp.", model_.hidden_size, model_.intermediate_size, shard_.tp_rank,
                           shard_.tp_size, model_.mlp_bias);
    }
    return layer;
  }

  // Rows of the heads [heads.first, heads.last].
  Slice heads_of(const std::string& name, std::uint32_t all, const HeadRange& heads,
                 std::uint64_t dim) const {
    return {name, all * dim,         model_.hidden_size, heads.first * dim, heads.count() * dim,
            0,    model_.hidden_size};
  }

  void load_attention(const std::string& at, LayerWeights& layer) const {
    const std::uint64_t dim = model_.head_dim;
    const std::uint32_t q = model_.num_attention_heads;
    const std::uint32_t kv = model_.num_key_value_heads;
    layer.qkv = reader_.matrix({heads_of(at + "q_proj.weight", q, shard_.q_heads, dim),
                                heads_of(at + "k_proj.weight", kv, shard_.kv_heads, dim),
                                heads_of(at + "v_proj.weight", kv, shard_.kv_heads, dim)});
    if (model_.qkv_bias) {
      for (const auto& [name, all, heads] : {std::tuple("q_proj.bias", q, shard_.q_heads),
                                             {"k_proj.bias", kv, shard_.kv_heads},
                                             {"v_proj.bias", kv, shard_.kv_heads}}) {
        const std::vector<float> part =
            reader_.range(at + name, {all * dim}, heads.first * dim, heads.count() * dim);
        layer.qkv_bias.insert(layer.qkv_bias.end(), part.begin(), part.end());
      }
    }
    load_output(at, dim, layer);
    if (model_.qk_norm) {
      layer.q_norm = reader_.vector(at + "q_norm.weight", dim);
      layer.k_norm = reader_.vector(at + "k_norm.weight", dim);
    }
    if (model_.attention_sinks)
      layer.sinks = reader_.range(at + "sinks", {q}, shard_.q_heads.first, shard_.q_heads.count());
  }

  // The columns of this rank's heads; the bias is added once, after the sum over ranks.
  void load_output(const std::string& at, std::uint64_t v_dim, LayerWeights& layer) const {
    layer.o =
        reader_.matrix({{at + "o_proj.weight", model_.hidden_size, model_.num_attention_heads * v_dim, 0,
                         model_.hidden_size, shard_.q_heads.first * v_dim, shard_.q_heads.count() * v_dim}});
    if (model_.o_bias) layer.o_bias = reader_.vector(at + "o_proj.bias", model_.hidden_size);
  }

  void load_mla(const std::string& at, LayerWeights& layer) const {
    const MlaConfig& mla = model_.mla;
    const std::uint32_t heads = model_.num_attention_heads;
    const std::uint64_t q_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
    const std::uint64_t latent = mla.kv_lora_rank;
    const std::uint64_t q_in = mla.q_lora_rank > 0 ? mla.q_lora_rank : model_.hidden_size;
    MlaWeights& out = layer.mla;
    if (mla.q_lora_rank > 0) {
      out.q_a = reader_.matrix({{at + "q_a_proj.weight", mla.q_lora_rank, model_.hidden_size, 0,
                                 mla.q_lora_rank, 0, model_.hidden_size}});
      out.q_a_norm = reader_.vector(at + "q_a_layernorm.weight", mla.q_lora_rank);
    }
    out.q_b =
        reader_.matrix({{at + (mla.q_lora_rank > 0 ? "q_b_proj.weight" : "q_proj.weight"), heads * q_dim,
                         q_in, shard_.q_heads.first * q_dim, shard_.q_heads.count() * q_dim, 0, q_in}});
    const std::uint64_t kv_rows = latent + mla.qk_rope_head_dim;
    out.kv_a = reader_.matrix(
        {{at + "kv_a_proj_with_mqa.weight", kv_rows, model_.hidden_size, 0, kv_rows, 0, model_.hidden_size}});
    out.kv_a_norm = reader_.vector(at + "kv_a_layernorm.weight", latent);
    // kv_b: per head, nope rows of W_UK and then v rows of W_UV, each over the latent.
    const std::uint64_t rows = mla.qk_nope_head_dim + mla.v_head_dim;
    const std::string kv_b = at + "kv_b_proj.weight";
    for (std::uint32_t h = shard_.q_heads.first; h <= shard_.q_heads.last; ++h) {
      const std::vector<float> up = reader_.range(kv_b, {heads * rows, latent}, h * rows * latent,
                                                  std::uint64_t{mla.qk_nope_head_dim} * latent);
      out.absorb_k.emplace_back(reader_.type(), mla.kv_lora_rank, mla.qk_nope_head_dim,
                                [&](std::uint32_t i, float* row) {
                                  for (std::uint32_t j = 0; j < mla.qk_nope_head_dim; ++j)
                                    row[j] = up[j * latent + i];
                                });
      out.absorb_v.push_back(reader_.matrix(
          {{kv_b, heads * rows, latent, h * rows + mla.qk_nope_head_dim, mla.v_head_dim, 0, latent}}));
    }
    load_output(at, mla.v_head_dim, layer);
  }

  const ModelConfig& model_;
  const Shard& shard_;
  WeightReader reader_;
  Names names_;
};

}  // namespace

RankWeights load_rank_weights(const ModelConfig& model, const Shard& shard, WeightType type,
                              const TensorSource& source) {
  return Loader(model, shard, type, source).load();
}

}  // namespace tpsim::rank
