#include "rank/numeric/rank_weights.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "proto/base/error.h"
#include "rank/llm/layers.h"
#include "rank/weights/renamed_source.h"

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
                                    {"model.language_model.", ""},
                                    {"", ""}}) {
    if (source.has(std::string(model) + "embed_tokens.weight")) return {model, head};
  }
  return {"model.", ""};  // require() says what is missing
}

// How a head's layer differs from a model's.
struct LayerForm {
  bool input_norm = true;
  bool wide_qkv = false;  // made of twice the hidden size
};

class Loader {
 public:
  Loader(const ModelConfig& model, const Shard& shard, WeightType type, const TensorSource& source)
      : model_(model),
        shard_(shard),
        weights_(weight_list(model, shard)),
        source_(source, model.names.renamed),
        reader_(source_, type),
        names_(names_of(source_)) {}

  LayerWeights load_layer(std::uint32_t index) const {
    const std::uint32_t place = model_.names.blocks ? model_.layers[index].block : index;
    return layer(index, fmt::format("{}layers.{}.", names_.model, place));
  }

  RankWeights load_ends() const {
    RankWeights weights;
    weights.shard = shard_;
    weights.embedding = matrix(names_.model, "embed_tokens");
    weights.final_norm = norm(names_.model, "norm");
    if (!model_.tie_word_embeddings) weights.head = matrix(names_.head, "lm_head");
    const std::uint64_t streams = model_.compressed.streams;
    if (model_.is_compressed()) weights.head_streams = load_streams(names_.model + "hc_head_", streams, 1);
    return weights;
  }

  RankWeights load_draft(const DraftModel& draft, std::shared_ptr<const RankWeights> target) const {
    RankWeights weights;
    weights.shard = shard_;
    auto head = std::make_shared<DraftHeadWeights>();
    head->kind = draft.kind;
    head->target = std::move(target);
    const HeadNames names = head_names(draft);
    for (std::uint32_t i = 0; i < model_.num_layers; ++i) {
      const bool reads_joined = draft.kind == DraftKind::kEagle && i == 0;
      weights.layers.push_back(layer(i, names.layer + (i == 0 ? "" : fmt::format("layers.{}.", i)),
                                     {.input_norm = !reads_joined, .wide_qkv = draft.wide_qkv()}));
    }
    const std::uint64_t hidden = model_.hidden_size;
    const std::uint64_t inputs = draft.joined(/*extends=*/true) * hidden;
    head->join =
        reader_.matrix(names.at, {{names.join, hidden, inputs, 0, hidden, 0, inputs}}, reader_.type());
    const std::string bias = names.at + names.join + ".bias";
    if (draft.kind != DraftKind::kNextN && reader_.source().has(bias))
      head->join_bias = reader_.vector(bias, hidden);
    if (draft.kind == DraftKind::kNextN) {
      head->embedding_norm = vector(names.at, "enorm", hidden);
      head->hidden_norm = vector(names.at, "hnorm", hidden);
      weights.final_norm = vector(names.at, "shared_head.norm", hidden);
    } else if (draft.kind == DraftKind::kEagle3) {
      head->hidden_norm = vector(names.layer, "hidden_norm", hidden);
      weights.final_norm = vector(names.at, "norm", hidden);
      if (draft.own_head) weights.head = matrix("", "lm_head");
    }
    weights.draft = std::move(head);
    return weights;
  }

 private:
  // Where a head's tensors are: its first layer, the matrix that joins, and all else.
  struct HeadNames {
    std::string layer, join, at;
  };
  HeadNames head_names(const DraftModel& draft) const {
    if (draft.kind == DraftKind::kNextN) {
      const std::string at = fmt::format("{}layers.{}.", names_.model, draft.layer_of_target);
      return {at, "eh_proj", at};
    }
    // SGLang takes all of these (load_weights of models/llama_eagle.py and llama_eagle3.py).
    const std::string at = reader_.source().has("fc.weight") ? "" : "model.";
    for (const char* layer : {"midlayer.", "layers.0."}) {
      if (reader_.source().has(at + layer + "self_attn.o_proj.weight")) return {at + layer, "fc", at};
    }
    return {at + "layers.0.", "fc", at};
  }

  const WeightSpec& spec(std::string_view name, std::uint32_t attention = 0) const {
    return weight_named(weights_, name, attention);
  }
  PackedMatrix matrix(const std::string& at, std::string_view name) const {
    return reader_.matrix(at, spec(name));
  }
  std::vector<float> vector(const std::string& at, const std::string& name) const {
    return reader_.vector(at + name + ".weight", spec(name).n);
  }

  std::vector<float> vector(const std::string& at, const std::string& name, std::uint64_t size) const {
    return reader_.vector(at + name + ".weight", size);
  }

  // Of the hidden state: its biases behind the weights, where it has any.
  std::vector<float> norm(const std::string& at, const std::string& name) const {
    std::vector<float> weights = vector(at, name, model_.hidden_size);
    if (!model_.norm_bias) return weights;
    const std::vector<float> bias = reader_.vector(at + name + ".bias", model_.hidden_size);
    weights.insert(weights.end(), bias.begin(), bias.end());
    return weights;
  }

  LayerWeights layer(std::uint32_t index, const std::string& at, LayerForm form = {}) const {
    if (model_.facts.priced_only)
      throw_user_error("--executor numeric: {} is priced and not computed; use --executor modeled",
                       model_.architecture);
    LayerWeights layer;
    if (form.input_norm && model_.pre_norms) layer.input_norm = norm(at, "input_layernorm");
    const bool bare = model_.layers[index].bare;
    const std::string mlp_at =
        model_.names.blocks ? fmt::format("{}layers.{}.", names_.model, model_.layers[index].block + 1) : at;
    if (!bare && !model_.parallel_block) layer.post_attention_norm = norm(mlp_at, "post_attention_layernorm");
    if (model_.post_norms) {
      if (model_.pre_norms) layer.pre_feedforward_norm = vector(at, "pre_feedforward_layernorm");
      layer.post_feedforward_norm = vector(at, "post_feedforward_layernorm");
    }
    if (model_.layer_scalars) layer.scalar = reader_.vector(at + "layer_scalar", 1).front();
    if (model_.layers[index].linear) {
      load_linear(at, layer.linear);
    } else if (model_.is_compressed()) {
      load_compressed(at, model_.layers[index], layer);
    } else if (model_.is_mla()) {
      load_mla(at, layer);
      if (model_.layers[index].indexer) load_indexer(at, layer.indexer);
    } else {
      load_attention(at, model_.layers[index], layer, form.wide_qkv);
      if (model_.is_block_sparse() && model_.layers[index].indexer) load_block_indexer(at, layer.indexer);
    }
    if (model_.layers[index].moe) {
      layer.moe = load_moe(model_, shard_, weights_, reader_, mlp_at, model_.layers[index]);
    } else if (!bare) {
      layer.mlp =
          load_mlp(reader_, mlp_at, spec("gate_up_proj"), spec("down_proj"), shard_.dense_mlp.rank == 0);
      layer.mlp.limit = model_.layers[index].mlp_limit;
    }
    return layer;
  }

  void load_attention(const std::string& at, const LayerConfig& config, LayerWeights& layer,
                      bool wide_qkv) const {
    const std::uint32_t kind = model_.has_kinds_of_heads() ? config.attention : 0;
    const AttentionHeads heads = model_.heads_of(config);
    std::vector<TensorSlice> slices = spec("qkv_proj", kind).slices;
    for (TensorSlice& slice : slices) {
      slice.columns *= wide_qkv ? 2 : 1;
      slice.width *= wide_qkv ? 2 : 1;
    }
    layer.qkv = reader_.matrix(at, slices, reader_.type());
    layer.qkv_bias = reader_.bias(at, spec("qkv_proj", kind));
    load_output(at, layer, kind);
    if (model_.head_gates) layer.head_gates = reader_.matrix(at, spec("g_proj", kind));
    if (model_.qk_norm_over_heads || model_.qk_norm_by_head) {
      layer.q_norm = norm_over_heads(at + "self_attn.q_norm", model_.num_attention_heads, shard_.q_heads);
      layer.k_norm = norm_over_heads(at + "self_attn.k_norm", model_.num_key_value_heads, shard_.kv_heads);
    } else if (model_.qk_norm) {
      layer.q_norm = vector(at + "self_attn.", "q_norm", heads.head_dim);
      layer.k_norm = vector(at + "self_attn.", "k_norm", heads.head_dim);
    }
    if (model_.attention_sinks && (!model_.sinks_in_windows || config.sliding_window > 0))
      layer.sinks = reader_.range(at + "self_attn.sinks", {model_.num_attention_heads}, shard_.q_heads.first,
                                  spec("sinks").n);
  }

  std::vector<float> norm_over_heads(const std::string& name, std::uint64_t all, HeadRange mine) const {
    const std::uint64_t dim = model_.head_dim;
    const std::vector<std::uint64_t> shape =
        model_.qk_norm_by_head ? std::vector{all, dim} : std::vector{all * dim};
    return reader_.range(name + ".weight", shape, mine.first * dim, mine.count() * dim);
  }

  void load_linear(const std::string& at, LinearAttentionWeights& out) const {
    switch (model_.linear.kind) {
      case LinearKind::kGatedDelta:
        return load_gated_delta(at, out);
      case LinearKind::kKda:
        return load_kda(at, out);
      case LinearKind::kShortConv:
        out.qkvz = matrix(at, "in_proj");
        out.out = matrix(at, "out_proj");
        return add_channels(at + "conv.conv.weight", model_.hidden_size, 0, model_.hidden_size, out);
      case LinearKind::kMamba2:
        return load_mamba2(at, out);
      case LinearKind::kLightning:
        return;  // ArchitectureFacts::priced_only
    }
  }

  // This rank's part of `of_all` channels from the `from`-th on, of a convolution of `channels`.
  void add_channels(const std::string& name, std::uint64_t channels, std::uint64_t from, std::uint64_t of_all,
                    LinearAttentionWeights& out) const {
    const std::uint64_t kernel = model_.linear.conv_kernel;
    const std::uint64_t mine = of_all / shard_.tp_size;
    const std::vector<float> part =
        reader_.range(name, {channels, 1, kernel}, (from + mine * shard_.tp_rank) * kernel, mine * kernel);
    out.conv.insert(out.conv.end(), part.begin(), part.end());
  }

  // This rank's part of a vector that is cut by heads.
  std::vector<float> of_heads(const std::string& name, const std::vector<std::uint64_t>& shape,
                              std::uint64_t elements) const {
    const std::uint64_t mine = elements / shard_.tp_size;
    return reader_.range(name, shape, mine * shard_.tp_rank, mine);
  }

  void load_gated_delta(const std::string& at, LinearAttentionWeights& out) const {
    out.qkvz = matrix(at, "in_proj_qkvz");
    out.ba = matrix(at, "in_proj_ba");
    out.out = matrix(at, "out_proj");
    const LinearAttentionConfig& linear = model_.linear;
    const std::string name = at + "linear_attn.";
    const std::uint64_t keys = linear.key_dim();
    const std::uint64_t values = linear.value_dim();
    const std::uint64_t channels = 2 * keys + values;
    add_channels(name + "conv1d.weight", channels, 0, keys, out);
    add_channels(name + "conv1d.weight", channels, keys, keys, out);
    add_channels(name + "conv1d.weight", channels, 2 * keys, values, out);
    const std::uint64_t heads = linear.num_value_heads;
    out.a_log = of_heads(name + "A_log", {heads}, heads);
    out.dt_bias = of_heads(name + "dt_bias", {heads}, heads);
    out.norm = reader_.vector(name + "norm.weight", linear.value_head_dim);
  }

  void load_kda(const std::string& at, LinearAttentionWeights& out) const {
    out.qkvz = matrix(at, "qkv_proj.kda");
    out.ba = matrix(at, "b_proj");
    out.out = matrix(at, "o_proj.kda");
    out.narrow = matrix(at, "fg_a_proj");
    out.decays = matrix(at, "f_b_proj");
    out.gates = matrix(at, "g_b_proj");
    const LinearAttentionConfig& linear = model_.linear;
    const std::string name = at + "self_attn.";
    const std::uint64_t keys = linear.key_dim();
    for (const char* conv : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"})
      add_channels(name + conv, keys, 0, keys, out);
    out.a_log = of_heads(name + "A_log", {1, 1, linear.num_key_heads, 1}, linear.num_key_heads);
    out.dt_bias = of_heads(name + "dt_bias", {keys}, keys);
    out.norm = reader_.vector(name + "o_norm.weight", linear.value_head_dim);
  }

  void load_mamba2(const std::string& at, LinearAttentionWeights& out) const {
    const LinearAttentionConfig& linear = model_.linear;
    if (linear.num_key_heads % shard_.tp_size != 0)
      throw_user_error(
          "--executor numeric: --tp {} does not divide the {} groups of the Mamba layers of {}, over which "
          "their norms reach; use a divisor of it",
          shard_.tp_size, linear.num_key_heads, model_.name);
    out.qkvz = matrix(at, "in_proj");
    out.out = matrix(at, "out_proj");
    const std::string name = at + "mixer.";
    const std::uint64_t keys = linear.key_dim(), values = linear.value_dim(), heads = linear.num_value_heads;
    for (const auto& [from, count] :
         {std::pair{std::uint64_t{0}, values}, {values, keys}, {values + keys, keys}}) {
      const std::uint64_t channels = values + 2 * keys;
      add_channels(name + "conv1d.weight", channels, from, count, out);
      if (!linear.conv_bias) continue;
      const std::uint64_t mine = count / shard_.tp_size;
      const std::vector<float> part =
          reader_.range(name + "conv1d.bias", {channels}, from + mine * shard_.tp_rank, mine);
      out.conv_bias.insert(out.conv_bias.end(), part.begin(), part.end());
    }
    out.a_log = of_heads(name + "A_log", {heads}, heads);
    out.dt_bias = of_heads(name + "dt_bias", {heads}, heads);
    out.skip = of_heads(name + "D", {heads}, heads);
    out.norm = of_heads(name + "norm.weight", {values}, values);
  }

  // The bias is added once, after the sum over ranks.
  void load_output(const std::string& at, LayerWeights& layer, std::uint32_t kind = 0) const {
    layer.o = reader_.matrix(at, spec("o_proj", kind));
    layer.o_bias = reader_.bias(at, spec("o_proj", kind));
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

  void load_compressed(const std::string& at, const LayerConfig& config, LayerWeights& layer) const {
    const CompressedConfig& compressed = model_.compressed;
    const std::uint64_t streams = compressed.streams;
    layer.attention_streams = load_streams(at + "hc_attn_", (2 + streams) * streams, 3);
    layer.mlp_streams = load_streams(at + "hc_ffn_", (2 + streams) * streams, 3);
    CompressedWeights& out = layer.compressed;
    const std::string name = at + "attn.";
    out.qkv_a = matrix(at, "wqkv_a");
    out.q_norm = vector(name, "q_norm", compressed.q_lora_rank);
    out.kv_norm = vector(name, "kv_norm", model_.head_dim);
    out.q_b = matrix(at, "wq_b");
    layer.sinks = reader_.range(name + "attn_sink", {model_.num_attention_heads}, shard_.q_heads.first,
                                spec("sinks").n);
    TensorSlice group = spec("wo_a").slices.front();
    const std::uint64_t end = group.first + group.count;
    group.count = compressed.o_lora_rank;
    for (; group.first < end; group.first += group.count)
      out.o_a.push_back(reader_.matrix(at, {group}, reader_.type()));
    out.o_b = matrix(at, "wo_b");
    if (config.compress_ratio == 0) return;
    out.entries = load_compressor(name + "compressor.", config, model_.head_dim);
    if (!config.indexer) return;
    out.index = load_compressor(name + "indexer.compressor.", config, model_.indexer.head_dim);
    out.index_q = matrix(at, "indexer.wq_b");
    const std::uint64_t heads = model_.indexer.num_heads, hidden = model_.hidden_size;
    out.index_heads =
        reader_.matrix(name, {{"indexer.weights_proj", heads, hidden, 0, heads, 0, hidden}}, reader_.type());
  }

  CompressorWeights load_compressor(const std::string& at, const LayerConfig& config,
                                    std::uint64_t dim) const {
    const std::uint64_t made = config.indexer ? 2 * dim : dim, hidden = model_.hidden_size;
    CompressorWeights out;
    out.kv_gate = reader_.matrix(
        at, {{"wkv", made, hidden, 0, made, 0, hidden}, {"wgate", made, hidden, 0, made, 0, hidden}},
        reader_.type());
    out.position = reader_.range(at + "ape", {config.compress_ratio, made}, 0, config.compress_ratio * made);
    out.norm = vector(at, "norm", dim);
    return out;
  }

  StreamWeights load_streams(const std::string& at, std::uint64_t outputs, std::uint64_t scales) const {
    const std::uint64_t inputs = model_.compressed.streams * std::uint64_t{model_.hidden_size};
    reader_.source().require(at + "fn", {outputs, inputs});
    StreamWeights out;
    out.mix = PackedMatrix(
        WeightType::kFp32, static_cast<std::uint32_t>(outputs), static_cast<std::uint32_t>(inputs),
        [&](std::uint32_t i, float* row) { reader_.source().read(at + "fn", i * inputs, inputs, row); });
    out.base = reader_.vector(at + "base", outputs);
    out.scale = reader_.vector(at + "scale", scales);
    return out;
  }

  void load_indexer(const std::string& at, IndexerWeights& out) const {
    out.q = matrix(at, "indexer.wq_b");
    out.k = matrix(at, "indexer.wk");
    out.heads = matrix(at, "indexer.weights_proj");
    const std::string norm = at + "self_attn.indexer.k_norm.";
    out.k_norm = reader_.vector(norm + "weight", model_.indexer.head_dim);
    out.k_norm_bias = reader_.vector(norm + "bias", model_.indexer.head_dim);
  }

  // One head of queries for each KV head of the rank, and one key.
  void load_block_indexer(const std::string& at, IndexerWeights& out) const {
    const std::uint64_t dim = model_.indexer.head_dim, hidden = model_.hidden_size;
    const std::string name = at + "self_attn.index_";
    out.q = reader_.matrix(name,
                           {{"q_proj", model_.indexer.num_heads * dim, hidden, shard_.kv_heads.first * dim,
                             shard_.kv_heads.count() * dim, 0, hidden}},
                           reader_.type());
    out.k = reader_.matrix(name, {{"k_proj", dim, hidden, 0, dim, 0, hidden}}, reader_.type());
    out.q_norm = reader_.vector(name + "q_norm.weight", dim);
    out.k_norm = reader_.vector(name + "k_norm.weight", dim);
  }

  const ModelConfig& model_;
  const Shard& shard_;
  const std::vector<WeightSpec> weights_;
  const RenamedSource source_;
  WeightReader reader_;
  Names names_;
};

}  // namespace

RankWeights load_rank_weights(const ModelConfig& model, const Shard& shard, WeightType type,
                              const TensorSource& source) {
  const Loader loader(model, shard, type, source);
  RankWeights weights = loader.load_ends();
  for (std::uint32_t i = 0; i < model.num_layers; ++i) weights.layers.push_back(loader.load_layer(i));
  return weights;
}

RankWeights load_ends(const ModelConfig& model, const Shard& shard, WeightType type,
                      const TensorSource& source) {
  return Loader(model, shard, type, source).load_ends();
}

LayerWeights load_layer(const ModelConfig& model, const Shard& shard, WeightType type,
                        const TensorSource& source, std::uint32_t index) {
  return Loader(model, shard, type, source).load_layer(index);
}

RankWeights load_draft_head_weights(const DraftModel& draft, const Shard& shard, WeightType type,
                                    const TensorSource& source, std::shared_ptr<const RankWeights> target) {
  return Loader(draft.config, shard, type, source).load_draft(draft, std::move(target));
}

std::vector<std::uint32_t> load_token_map(const DraftModel& draft, std::uint32_t target_vocab_size,
                                          const TensorSource& source) {
  std::vector<std::uint32_t> token_of;
  if (draft.kind != DraftKind::kEagle3 || !source.has("d2t")) return token_of;
  const std::uint32_t entries = draft.config.vocab_size;
  const std::vector<std::int64_t> offsets = source.integers("d2t", entries);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::int64_t token = offsets[i] + i;
    if (offsets[i] < -std::int64_t{i} || token >= target_vocab_size)
      throw_user_error("--speculative-draft-model-path: entry {} of d2t names token {} of a vocabulary of {}",
                       i, token, target_vocab_size);
    token_of.push_back(static_cast<std::uint32_t>(token));
  }
  return token_of;
}

}  // namespace tpsim::rank
