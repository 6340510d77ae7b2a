#include "rank/model/layers.h"

#include <stdexcept>
#include <utility>

namespace tpsim::rank {

std::vector<AttentionLayers> attention_layers(const ModelConfig& model, const Shard& shard,
                                              NumberFormat kv_format) {
  std::vector<AttentionLayers> out;
  for (const AttentionKind& kind : model.attention) {
    AttentionLayers& layers = out.emplace_back();
    layers.count = kind.num_layers;
    attention::LayerShape& shape = layers.shape;
    shape.num_q_heads = shard.q_heads.count();
    shape.num_kv_heads = shard.kv_heads.count();
    shape.head_dim = shape.v_head_dim = model.head_dim;
    shape.sliding_window = kind.sliding_window;
    shape.kv_format = kv_format;
    if (!model.is_mla()) continue;
    // Absorbed: all heads share one latent and one rotated key, which every rank keeps.
    shape.form = attention::AttentionForm::kMlaAbsorbed;
    shape.num_kv_heads = 1;
    shape.head_dim = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim;
    shape.v_head_dim = model.mla.kv_lora_rank;
  }
  return out;
}

std::uint64_t kv_bytes_per_token(const ModelConfig& model, const Shard& shard, NumberFormat kv_format) {
  std::uint64_t bytes = 0;
  for (const AttentionLayers& layers : attention_layers(model, shard, kv_format))
    bytes += stored_bytes(kv_format, layers.shape.kv_elements()) * layers.count;
  return bytes;
}

namespace {

class List {
 public:
  List(const ModelConfig& model, const Shard& shard) : model_(model), shard_(shard) {}

  std::vector<WeightSpec> make() && {
    if (model_.is_mla()) {
      add_latent_attention();
    } else {
      add_head_attention();
    }
    for (WeightSpec& spec : list_) spec.part = ModelPart::kAttention;
    if (moe().num_layers > 0) add_router_and_shared_experts();
    if (const std::uint32_t dense = model_.num_layers - moe().num_layers; dense > 0)
      add_gated(ModelPart::kDenseMlp, shard_.dense_mlp, "", "mlp.", model_.intermediate_size, model_.mlp_bias,
                dense);
    WeightSpec& head = add_vocabulary("lm_head", shard_.head, shard_.vocab);
    head.part = ModelPart::kHead;
    head.tied = model_.tie_word_embeddings;
    if (moe().num_layers > 0) add_experts();
    add_vocabulary("embed_tokens", shard_.attention, shard_.embedding_vocab).role = WeightRole::kEmbedding;
    add_vectors();
    return std::move(list_);
  }

 private:
  const MoeConfig& moe() const { return model_.moe; }

  // A matrix of these slices.
  WeightSpec& add(std::string name, Sharding sharding, std::uint32_t layers,
                  std::vector<TensorSlice> slices) {
    WeightSpec& spec = list_.emplace_back();
    spec.name = std::move(name);
    spec.sharding = sharding;
    spec.layers = layers;
    spec.k = slices.front().width;
    for (const TensorSlice& slice : slices) spec.n += slice.count;
    spec.slices = std::move(slices);
    spec.quantised = true;
    return spec;
  }
  void add_vector(std::string name, std::uint64_t n, std::uint32_t layers) {
    WeightSpec& spec = list_.emplace_back();
    spec.name = std::move(name);
    spec.role = WeightRole::kVector;
    spec.k = 1;
    spec.n = n;
    spec.layers = layers;
  }

  static TensorSlice whole(std::string tensor, std::uint64_t rows, std::uint64_t columns) {
    return {std::move(tensor), rows, columns, 0, rows, 0, columns};
  }
  static TensorSlice rows_of(std::string tensor, std::uint64_t rows, std::uint64_t columns,
                             std::uint64_t first, std::uint64_t count) {
    return {std::move(tensor), rows, columns, first, count, 0, columns};
  }
  static TensorSlice columns_of(std::string tensor, std::uint64_t rows, std::uint64_t columns,
                                std::uint64_t first, std::uint64_t count) {
    return {std::move(tensor), rows, columns, 0, rows, first, count};
  }
  // Rows of `heads` out of `all` heads of `dim` elements.
  static TensorSlice head_rows(std::string tensor, std::uint64_t all, const HeadRange& heads,
                               std::uint64_t dim, std::uint64_t columns) {
    return rows_of(std::move(tensor), all * dim, columns, heads.first * dim, heads.count() * dim);
  }

  void add_output(std::uint64_t v_dim) {
    WeightSpec& o = add("o_proj", Sharding::kRow, model_.num_layers,
                        {columns_of("self_attn.o_proj", hidden_, model_.num_attention_heads * v_dim,
                                    shard_.q_heads.first * v_dim, shard_.q_heads.count() * v_dim)});
    if (model_.o_bias) o.bias = o.n;
  }

  void add_head_attention() {
    const std::uint64_t dim = model_.head_dim;
    const std::uint32_t kv_heads = model_.num_key_value_heads;
    WeightSpec& qkv =
        add("qkv_proj", Sharding::kColumn, model_.num_layers,
            {head_rows("self_attn.q_proj", model_.num_attention_heads, shard_.q_heads, dim, hidden_),
             head_rows("self_attn.k_proj", kv_heads, shard_.kv_heads, dim, hidden_),
             head_rows("self_attn.v_proj", kv_heads, shard_.kv_heads, dim, hidden_)});
    if (model_.qkv_bias) qkv.bias = qkv.n;
    add_output(dim);
  }

  // The latent projections are on every rank, what comes out of them is cut by heads. Decode absorbs kv_b
  // into queries and outputs; the weights read are the same.
  void add_latent_attention() {
    const MlaConfig& mla = model_.mla;
    const std::uint32_t layers = model_.num_layers;
    const std::uint32_t heads = model_.num_attention_heads;
    if (mla.q_lora_rank > 0) {
      add("q_a_proj", Sharding::kReplicated, layers, {whole("self_attn.q_a_proj", mla.q_lora_rank, hidden_)});
      add("q_b_proj", Sharding::kColumn, layers,
          {head_rows("self_attn.q_b_proj", heads, shard_.q_heads, model_.head_dim, mla.q_lora_rank)});
    } else {
      add("q_proj", Sharding::kColumn, layers,
          {head_rows("self_attn.q_proj", heads, shard_.q_heads, model_.head_dim, hidden_)});
    }
    add("kv_a_proj_with_mqa", Sharding::kReplicated, layers,
        {whole("self_attn.kv_a_proj_with_mqa", std::uint64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim,
               hidden_)});
    // Per head, the rows that make the key without rotation, then those that make the value.
    add("kv_b_proj", Sharding::kColumn, layers,
        {head_rows("self_attn.kv_b_proj", heads, shard_.q_heads,
                   std::uint64_t{mla.qk_nope_head_dim} + mla.v_head_dim, mla.kv_lora_rank)});
    add_output(mla.v_head_dim);
  }

  void add_gated(ModelPart part, Split split, const std::string& prefix, const std::string& at,
                 std::uint64_t width, bool bias, std::uint32_t layers) {
    const std::uint64_t mine = width / split.size;
    const std::uint64_t first = mine * split.rank;
    WeightSpec& gate_up = add(prefix + "gate_up_proj", Sharding::kColumn, layers,
                              {rows_of(at + "gate_proj", width, hidden_, first, mine),
                               rows_of(at + "up_proj", width, hidden_, first, mine)});
    gate_up.part = part;
    if (bias) gate_up.bias = gate_up.n;
    WeightSpec& down = add(prefix + "down_proj", Sharding::kRow, layers,
                           {columns_of(at + "down_proj", hidden_, width, first, mine)});
    down.part = part;
    if (bias) down.bias = down.n;
  }

  void add_router_and_shared_experts() {
    WeightSpec& gate =
        add("gate", Sharding::kReplicated, moe().num_layers, {whole("mlp.gate", moe().num_experts, hidden_)});
    gate.part = ModelPart::kRouter;
    gate.quantised = false;
    // The sigmoid's bias chooses experts only, but is there as well.
    if (moe().router_bias || moe().scoring == ExpertScoring::kSigmoid) gate.bias = moe().num_experts;
    if (moe().num_shared_experts > 0)
      add_gated(ModelPart::kSharedExperts, shard_.shared_experts, "shared_experts.", "mlp.shared_experts.",
                std::uint64_t{moe().num_shared_experts} * moe().intermediate_size, false, moe().num_layers);
  }

  // A part of their number, and of each a part of its width.
  void add_experts() {
    const std::uint64_t width = moe().intermediate_size;
    const std::uint64_t mine = width / shard_.expert_width.size;
    const std::uint64_t first = mine * shard_.expert_width.rank;
    const auto of_experts = [&](WeightSpec& spec) {
      spec.role = WeightRole::kExperts;
      spec.part = ModelPart::kExperts;
      spec.experts = moe().num_experts / shard_.experts.size;
      if (moe().expert_bias) spec.bias = spec.n;
    };
    of_experts(add("experts.gate_up_proj", Sharding::kColumn, moe().num_layers,
                   {rows_of("gate_proj", width, hidden_, first, mine),
                    rows_of("up_proj", width, hidden_, first, mine)}));
    of_experts(add("experts.down_proj", Sharding::kRow, moe().num_layers,
                   {columns_of("down_proj", hidden_, width, first, mine)}));
  }

  // The padded rows are not in the checkpoint.
  WeightSpec& add_vocabulary(const std::string& name, Split split, std::uint32_t entries) {
    WeightSpec& spec =
        add(name, Sharding::kVocabulary, 1,
            {rows_of(name, model_.vocab_size, hidden_, std::uint64_t{split.rank} * entries, entries)});
    spec.quantised = false;
    return spec;
  }

  void add_vectors() {
    const std::uint32_t layers = model_.num_layers;
    add_vector("input_layernorm", hidden_, layers);
    add_vector("post_attention_layernorm", hidden_, layers);
    if (model_.post_norms) {
      add_vector("pre_feedforward_layernorm", hidden_, layers);
      add_vector("post_feedforward_layernorm", hidden_, layers);
    }
    add_vector("norm", hidden_, 1);
    if (model_.qk_norm) {
      add_vector("q_norm", model_.head_dim, layers);
      add_vector("k_norm", model_.head_dim, layers);
    }
    if (model_.is_mla()) {
      if (model_.mla.q_lora_rank > 0) add_vector("q_a_layernorm", model_.mla.q_lora_rank, layers);
      add_vector("kv_a_layernorm", model_.mla.kv_lora_rank, layers);
    }
    if (model_.attention_sinks) add_vector("sinks", shard_.q_heads.count(), layers);
  }

  const ModelConfig& model_;
  const Shard& shard_;
  const std::uint64_t hidden_ = model_.hidden_size;
  std::vector<WeightSpec> list_;
};

}  // namespace

std::vector<WeightSpec> weight_list(const ModelConfig& model, const Shard& shard) {
  return List(model, shard).make();
}

const WeightSpec& weight_named(const std::vector<WeightSpec>& weights, std::string_view name) {
  for (const WeightSpec& weight : weights) {
    if (weight.name == name) return weight;
  }
  throw std::out_of_range("no weight " + std::string(name));
}

std::uint64_t num_parameters(const ModelConfig& model, const Shard& shard) {
  std::uint64_t parameters = 0;
  for (const WeightSpec& weight : weight_list(model, shard)) {
    if (!weight.tied) parameters += (weight.k * weight.n + weight.bias) * weight.copies();
  }
  return parameters;
}

std::uint64_t weight_bytes(const ModelConfig& model, const Shard& shard) {
  std::uint64_t bytes = 0;
  for (const WeightSpec& weight : weight_list(model, shard)) {
    if (!weight.tied)
      bytes += (weight.format.bytes(weight.n, weight.k) + weight.bias * model.weight_bytes) * weight.copies();
  }
  return bytes;
}

}  // namespace tpsim::rank
