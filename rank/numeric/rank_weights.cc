#include "rank/numeric/rank_weights.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "rank/model/layers.h"
#include "rank/numeric/expert_weights.h"
#include "rank/numeric/weight_reader.h"

namespace tpsim::rank {
namespace {

// Multimodal checkpoints keep the text model under a name of its own.
struct Names {
  std::string model;  // before "layers.0…", "embed_tokens…", "norm…"
  std::string head;   // before "lm_head"
};

Names names_of(const TensorSource& source) {
  for (const auto& [model, head] : {std::pair("model.", ""),
                                    {"language_model.model.", "language_model."},
                                    {"model.language_model.", ""}}) {
    if (source.has(std::string(model) + "embed_tokens.weight")) return {model, head};
  }
  return {"model.", ""};  // require() says what is missing
}

class Loader {
 public:
  Loader(const ModelConfig& model, const Shard& shard, WeightType type, const TensorSource& source)
      : model_(model),
        shard_(shard),
        weights_(weight_list(model, shard)),
        reader_(source, type),
        names_(names_of(source)) {}

  RankWeights load() const {
    RankWeights weights;
    weights.shard = shard_;
    weights.embedding = matrix(names_.model, "embed_tokens");
    for (std::uint32_t i = 0; i < model_.num_layers; ++i) weights.layers.push_back(layer(i));
    weights.final_norm = vector(names_.model, "norm");
    if (!model_.tie_word_embeddings) weights.head = matrix(names_.head, "lm_head");
    return weights;
  }

 private:
  const WeightSpec& spec(std::string_view name) const { return weight_named(weights_, name); }
  PackedMatrix matrix(const std::string& at, std::string_view name) const {
    return reader_.matrix(at, spec(name));
  }
  std::vector<float> vector(const std::string& at, const std::string& name) const {
    return reader_.vector(at + name + ".weight", spec(name).n);
  }

  LayerWeights layer(std::uint32_t index) const {
    const std::string at = fmt::format("{}layers.{}.", names_.model, index);
    LayerWeights layer;
    layer.input_norm = vector(at, "input_layernorm");
    layer.post_attention_norm = vector(at, "post_attention_layernorm");
    if (model_.post_norms) {
      layer.pre_feedforward_norm = vector(at, "pre_feedforward_layernorm");
      layer.post_feedforward_norm = vector(at, "post_feedforward_layernorm");
    }
    if (model_.layers[index].linear) {
      load_linear_attention(at, layer.linear);
    } else if (model_.is_mla()) {
      load_mla(at, layer);
      if (model_.layers[index].indexer) load_indexer(at, layer.indexer);
    } else {
      load_attention(at, layer);
    }
    if (model_.layers[index].moe) {
      layer.moe = load_moe(model_, shard_, weights_, reader_, at);
    } else {
      layer.mlp = load_mlp(reader_, at, spec("gate_up_proj"), spec("down_proj"), shard_.dense_mlp.rank == 0);
    }
    return layer;
  }

  void load_attention(const std::string& at, LayerWeights& layer) const {
    layer.qkv = matrix(at, "qkv_proj");
    layer.qkv_bias = reader_.bias(at, spec("qkv_proj"));
    load_output(at, layer);
    if (model_.qk_norm) {
      layer.q_norm = vector(at + "self_attn.", "q_norm");
      layer.k_norm = vector(at + "self_attn.", "k_norm");
    }
    if (model_.attention_sinks)
      layer.sinks = reader_.range(at + "self_attn.sinks", {model_.num_attention_heads}, shard_.q_heads.first,
                                  spec("sinks").n);
  }

  void load_linear_attention(const std::string& at, LinearAttentionWeights& out) const {
    out.qkvz = matrix(at, "in_proj_qkvz");
    out.ba = matrix(at, "in_proj_ba");
    out.out = matrix(at, "out_proj");
    const LinearAttentionConfig& linear = model_.linear;
    const std::string name = at + "linear_attn.";
    const std::uint64_t keys = linear.key_dim();
    const std::uint64_t values = linear.value_dim();
    const std::uint64_t kernel = linear.conv_kernel;
    const auto channels = [&](std::uint64_t from, std::uint64_t of_all) {
      const std::uint64_t mine = of_all / shard_.tp_size;
      const std::vector<float> part = reader_.range(name + "conv1d.weight", {2 * keys + values, 1, kernel},
                                                    (from + mine * shard_.tp_rank) * kernel, mine * kernel);
      out.conv.insert(out.conv.end(), part.begin(), part.end());
    };
    channels(0, keys);
    channels(keys, keys);
    channels(2 * keys, values);
    const std::uint64_t heads = spec("A_log").n;
    out.a_log = reader_.range(name + "A_log", {linear.num_value_heads}, heads * shard_.tp_rank, heads);
    out.dt_bias = reader_.range(name + "dt_bias", {linear.num_value_heads}, heads * shard_.tp_rank, heads);
    out.norm = reader_.vector(name + "norm.weight", linear.value_head_dim);
  }

  // The bias is added once, after the sum over ranks.
  void load_output(const std::string& at, LayerWeights& layer) const {
    layer.o = matrix(at, "o_proj");
    layer.o_bias = reader_.bias(at, spec("o_proj"));
  }

  void load_mla(const std::string& at, LayerWeights& layer) const {
    const MlaConfig& mla = model_.mla;
    MlaWeights& out = layer.mla;
    if (mla.q_lora_rank > 0) {
      const std::vector<TensorSlice>& slices = spec("fused_qkv_a_proj_with_mqa").slices;
      out.q_a = reader_.matrix(at, {slices[0]}, reader_.type());
      out.kv_a = reader_.matrix(at, {slices[1]}, reader_.type());
      out.q_a_norm = vector(at + "self_attn.", "q_a_layernorm");
    }
    out.q_b = matrix(at, mla.q_lora_rank > 0 ? "q_b_proj" : "q_proj");
    if (mla.q_lora_rank == 0) out.kv_a = matrix(at, "kv_a_proj_with_mqa");
    out.kv_a_norm = vector(at + "self_attn.", "kv_a_layernorm");
    out.expand = matrix(at, "kv_b_proj");
    // kv_b: per head, nope rows of W_UK and then v rows of W_UV, each over the latent.
    const TensorSlice& kv_b = spec("kv_b_proj").slices.front();
    const std::uint64_t latent = mla.kv_lora_rank;
    for (std::uint64_t row = kv_b.first; row < kv_b.first + kv_b.count;
         row += std::uint64_t{mla.qk_nope_head_dim} + mla.v_head_dim) {
      const std::vector<float> up = reader_.range(at + kv_b.tensor + ".weight", {kv_b.rows, kv_b.columns},
                                                  row * latent, std::uint64_t{mla.qk_nope_head_dim} * latent);
      out.absorb_k.emplace_back(reader_.type(), mla.kv_lora_rank, mla.qk_nope_head_dim,
                                [&](std::uint32_t i, float* to) {
                                  for (std::uint32_t j = 0; j < mla.qk_nope_head_dim; ++j)
                                    to[j] = up[j * latent + i];
                                });
      TensorSlice values = kv_b;
      values.first = row + mla.qk_nope_head_dim;
      values.count = mla.v_head_dim;
      out.absorb_v.push_back(reader_.matrix(at, {values}, reader_.type()));
    }
    load_output(at, layer);
  }

  void load_indexer(const std::string& at, IndexerWeights& out) const {
    out.q = matrix(at, "indexer.wq_b");
    out.k = matrix(at, "indexer.wk");
    out.heads = matrix(at, "indexer.weights_proj");
    const std::string norm = at + "self_attn.indexer.k_norm.";
    out.k_norm = reader_.vector(norm + "weight", model_.indexer.head_dim);
    out.k_norm_bias = reader_.vector(norm + "bias", model_.indexer.head_dim);
  }

  const ModelConfig& model_;
  const Shard& shard_;
  const std::vector<WeightSpec> weights_;
  WeightReader reader_;
  Names names_;
};

}  // namespace

RankWeights load_rank_weights(const ModelConfig& model, const Shard& shard, WeightType type,
                              const TensorSource& source) {
  return Loader(model, shard, type, source).load();
}

}  // namespace tpsim::rank
