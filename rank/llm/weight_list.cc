// The weights of a model on one rank, by name, shape and place in the checkpoint.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/llm/layers.h"
#include "rank/vision/vision_encoder.h"

namespace tpsim::rank {
namespace {

class List {
 public:
  List(const ModelConfig& model, const Shard& shard) : model_(model), shard_(shard) {}

  std::vector<WeightSpec> make() && {
    if (model_.is_mla()) {
      add_latent_attention();
    } else if (model_.is_compressed()) {
      add_compressed_attention();
    } else if (model_.has_kinds_of_heads()) {
      add_kinds_of_heads();
    } else {
      add_head_attention({.num_heads = model_.num_attention_heads,
                          .num_kv_heads = model_.num_key_value_heads,
                          .head_dim = model_.head_dim},
                         attention_layers());
    }
    if (model_.is_hybrid_linear()) {
      switch (model_.linear.kind) {
        case LinearKind::kGatedDelta:
          add_linear_attention();
          break;
        case LinearKind::kKda:
          add_kda();
          break;
        case LinearKind::kShortConv:
          add_short_conv();
          break;
        case LinearKind::kMamba2:
          add_mamba2();
          break;
        case LinearKind::kLightning:
          add_lightning();
          break;
      }
    }
    for (WeightSpec& spec : list_) spec.part = ModelPart::kAttention;
    if (moe().num_layers > 0) add_router_and_shared_experts();
    if (const std::uint32_t dense = model_.num_dense_layers(); dense > 0)
      add_gated(ModelPart::kDenseMlp, shard_.dense_mlp, "", model_.names.mlp, model_.intermediate_size,
                model_.mlp_bias, dense);
    if (shard_.stage.keeps_head()) {
      WeightSpec& head = add_vocabulary("lm_head", shard_.head, shard_.vocab);
      head.part = ModelPart::kHead;
      head.tied = model_.tie_word_embeddings && shard_.stage.first();  // where the embedding is
    }
    if (moe().num_layers > 0) add_experts();
    if (shard_.stage.first())
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

  // The checkpoint keeps the tensors of `slices` one above the other, in one.
  static void fuse(const std::string& tensor, std::vector<TensorSlice>& slices) {
    std::uint64_t rows = 0;
    for (TensorSlice& slice : slices) {
      slice.tensor = tensor;
      slice.first += rows;
      rows += slice.rows;
    }
    for (TensorSlice& slice : slices) slice.rows = rows;
  }

  void add_output(std::uint64_t v_dim, std::uint64_t heads, const HeadRange& mine, std::uint32_t layers) {
    WeightSpec& o = add(
        "o_proj", Sharding::kRow, layers,
        {columns_of("self_attn.o_proj", hidden_, heads * v_dim, mine.first * v_dim, mine.count() * v_dim)});
    if (model_.o_bias) o.bias = o.n;
  }

  void add_head_attention(const AttentionHeads& heads, std::uint32_t layers) {
    const RankHeads mine = rank_heads(heads, shard_.attention);
    const std::uint64_t dim = heads.head_dim;
    // A head's query, then its gate.
    const std::uint64_t q_dim = model_.attn_output_gate ? 2 * dim : dim;
    std::vector<TensorSlice> slices;
    if (model_.attn_output_gate && model_.names.gates_apart) {
      for (std::uint32_t h = mine.q.first; h <= mine.q.last; ++h) {
        for (const char* name : {"self_attn.q_proj", "self_attn.g_proj"})
          slices.push_back(head_rows(name, heads.num_heads, {h, h}, dim, hidden_));
      }
    } else {
      slices.push_back(head_rows("self_attn.q_proj", heads.num_heads, mine.q, q_dim, hidden_));
    }
    slices.push_back(head_rows("self_attn.k_proj", heads.num_kv_heads, mine.kv, dim, hidden_));
    if (!heads.keys_are_values)
      slices.push_back(
          head_rows("self_attn.v_proj", heads.num_kv_heads, mine.kv, heads.value_dim(), hidden_));
    if (model_.names.fused_projections || model_.names.fused_qkv) fuse("self_attn.qkv_proj", slices);
    if (model_.names.grouped_qkv) slices = grouped_slices(heads, mine);
    const std::uint32_t choosing = model_.is_block_sparse() ? model_.indexer.num_layers : 0;
    if (choosing > 0) add_block_indexer(slices);
    WeightSpec& qkv = add("qkv_proj", Sharding::kColumn, layers - choosing, std::move(slices));
    if (model_.qkv_bias) qkv.bias = qkv.n;
    if (model_.head_gates)
      add("g_proj", Sharding::kColumn, layers,
          {head_rows("self_attn.g_proj", heads.num_heads, mine.q, 1, hidden_)});
    add_output(heads.value_dim(), heads.num_heads, mine.q, layers);
  }

  // The same rows out of one tensor, in which each KV head has its queries, its key and its value.
  std::vector<TensorSlice> grouped_slices(const AttentionHeads& heads, const RankHeads& mine) const {
    const std::uint64_t dim = heads.head_dim, group = heads.num_heads / heads.num_kv_heads;
    const std::uint64_t rows = heads.num_kv_heads * (group + 2) * dim;
    std::vector<TensorSlice> slices;
    const auto take = [&](std::uint64_t kv, std::uint64_t place) {
      slices.push_back(rows_of("self_attn.wqkv", rows, hidden_, (kv * (group + 2) + place) * dim, dim));
    };
    for (std::uint64_t h = mine.q.first; h <= mine.q.last; ++h) take(h / group, h % group);
    for (const std::uint64_t place : {group, group + 1})
      for (std::uint64_t h = mine.kv.first; h <= mine.kv.last; ++h) take(h, place);
    return slices;
  }

  // Beside `qkv`, in one product: queries of the indexer, cut by heads, and its one key, on every rank
  // (maybe_build_fused_qkv_index of models/minimax_m3.py).
  void add_block_indexer(std::vector<TensorSlice> qkv) {
    const IndexerConfig& indexer = model_.indexer;
    const std::uint64_t heads = std::max(1U, indexer.num_heads / shard_.attention.size);
    qkv.push_back(whole("self_attn.index_qkv_proj", (heads + 1) * indexer.head_dim, hidden_));
    add("qkv_proj.index", Sharding::kColumn, indexer.num_layers, std::move(qkv));
  }

  // Layers that differ in their heads.
  void add_kinds_of_heads() {
    for (std::uint32_t kind = 0; kind < model_.attention.size(); ++kind) {
      const std::size_t first = list_.size();
      add_head_attention(model_.heads_of(model_.attention[kind]), model_.attention[kind].num_layers);
      for (std::size_t i = first; i < list_.size(); ++i) list_[i].attention = kind;
    }
  }

  // models/lfm2.py: two gates and what they weigh of each channel, the convolution, and the way back.
  void add_short_conv() {
    const LinearAttentionConfig& linear = model_.linear;
    const std::uint64_t all = linear.value_dim();
    const std::uint64_t channels = all / shard_.tp_size;
    const std::uint64_t first = channels * shard_.tp_rank;
    const auto part = [&](std::uint64_t place) {
      return rows_of("conv.in_proj", 3 * all, hidden_, place * all + first, channels);
    };
    // What is weighed, the gate before the convolution and the one behind it.
    add("in_proj", Sharding::kColumn, linear.num_layers, {part(2), part(0), part(1)});
    add("out_proj", Sharding::kRow, linear.num_layers,
        {columns_of("conv.out_proj", hidden_, all, first, channels)});
  }

  // MambaMixer2 (layers/attention/mamba/mamba.py): gates and values, keys and queries of the groups of a
  // rank's heads, and a step for each head.
  void add_mamba2() {
    const LinearLayers linear = linear_layers(model_, shard_);
    const LinearAttentionConfig& config = model_.linear;
    const std::uint64_t all = config.value_dim(), keys = config.key_dim();
    const std::uint64_t values = std::uint64_t{linear.num_v_heads} * linear.v_dim;
    // Ranks share a group where there are more of them.
    const std::uint64_t first_key =
        std::uint64_t{shard_.tp_rank} * config.num_key_heads / shard_.tp_size * linear.k_dim;
    const std::uint64_t mine = std::uint64_t{linear.num_k_heads} * linear.k_dim;
    const auto part = [&](std::uint64_t offset, std::uint64_t first, std::uint64_t count) {
      return rows_of("mixer.in_proj", 2 * (all + keys) + config.num_value_heads, hidden_, offset + first,
                     count);
    };
    const std::uint64_t first = values * shard_.tp_rank;
    // What is convolved (values, keys, queries), gates, steps.
    add("in_proj", Sharding::kColumn, linear.count,
        {part(all, first, values), part(2 * all, first_key, mine), part(2 * all + keys, first_key, mine),
         part(0, first, values),
         part(2 * (all + keys), std::uint64_t{linear.num_v_heads} * shard_.tp_rank, linear.num_v_heads)});
    add("out_proj", Sharding::kRow, linear.count,
        {columns_of("mixer.out_proj", hidden_, all, first, values)});
  }

  // models/bailing_moe_linear.py: queries, keys and values, a gate of what the heads say, and the way back.
  void add_lightning() {
    const LinearLayers linear = linear_layers(model_, shard_);
    const std::uint64_t values = std::uint64_t{linear.num_v_heads} * linear.v_dim;
    add("query_key_value", Sharding::kColumn, linear.count,
        {whole("attention.query_key_value", linear.conv_dim(), hidden_)});
    add("g_proj", Sharding::kColumn, linear.count, {whole("attention.g_proj", values, hidden_)});
    add("dense", Sharding::kRow, linear.count, {whole("attention.dense", hidden_, values)});
  }

  // models/kimi_linear.py: queries, keys and values; decays and output gates by way of one head's width,
  // which every rank makes itself; how much of a token is written.
  void add_kda() {
    const LinearAttentionConfig& linear = model_.linear;
    const std::uint64_t heads = linear.num_key_heads / shard_.tp_size;
    const std::uint64_t width = linear.key_head_dim;
    const std::uint32_t layers = linear.num_layers;
    // Of this rank's heads.
    const auto rows = [&](const char* name, std::uint64_t of_head, std::uint64_t columns) {
      return rows_of(std::string("self_attn.") + name, linear.num_key_heads * of_head, columns,
                     heads * shard_.tp_rank * of_head, heads * of_head);
    };
    std::vector<TensorSlice> wide = {rows("q_proj", width, hidden_), rows("k_proj", width, hidden_),
                                     rows("v_proj", width, hidden_)};
    if (linear.full_rank_gate) {  // models/kimi_k3.py: gates beside those, decays and strengths together
      wide.push_back(rows("g_proj", width, hidden_));
      add("fused_qkvg_proj.kda", Sharding::kColumn, layers, std::move(wide));
      add("bfa_proj", Sharding::kColumn, layers,
          {whole("self_attn.f_a_proj", width, hidden_), rows("b_proj", 1, hidden_)});
      add("f_b_proj", Sharding::kColumn, layers, {rows("f_b_proj", width, width)});
      return add_kda_output(heads, width);
    }
    add("qkv_proj.kda", Sharding::kColumn, layers, std::move(wide));
    add("fg_a_proj", Sharding::kReplicated, layers,
        {whole("self_attn.f_a_proj", width, hidden_), whole("self_attn.g_a_proj", width, hidden_)})
        .joined = true;
    add("b_proj", Sharding::kColumn, layers, {rows("b_proj", 1, hidden_)}).joined = true;
    add("f_b_proj", Sharding::kColumn, layers, {rows("f_b_proj", width, width)});
    add("g_b_proj", Sharding::kColumn, layers, {rows("g_b_proj", width, width)}).joined = true;
    add_kda_output(heads, width);
  }

  void add_kda_output(std::uint64_t heads, std::uint64_t width) {
    add("o_proj.kda", Sharding::kRow, model_.linear.num_layers,
        {columns_of("self_attn.o_proj", hidden_, model_.linear.num_key_heads * width,
                    heads * shard_.tp_rank * width, heads * width)});
  }

  // Layers that have keys and values.
  std::uint32_t attention_layers() const { return model_.num_layers - model_.linear.num_layers; }

  // Rows of every kind are cut by heads. What a rank has of a kind lies together, whatever the checkpoint
  // does.
  void add_linear_attention() {
    const LinearAttentionConfig& linear = model_.linear;
    const std::uint32_t heads = linear.num_key_heads / shard_.tp_size;
    const std::uint32_t first = heads * shard_.tp_rank;
    const std::uint64_t group = linear.num_value_heads / linear.num_key_heads;
    const std::uint64_t k = linear.key_head_dim;
    const std::uint64_t v = group * linear.value_head_dim;  // of one key head
    const auto at = [](const char* name) { return std::string("linear_attn.") + name; };
    std::vector<TensorSlice> qkvz, ba;
    if (linear.packed) {
      const std::uint64_t unit = 2 * k + 2 * v;
      const auto take = [&](std::vector<TensorSlice>& to, const char* name, std::uint64_t of_head,
                            std::uint64_t offset, std::uint64_t rows) {
        for (std::uint64_t h = first; h < first + heads; ++h)
          to.push_back(
              rows_of(at(name), of_head * linear.num_key_heads, hidden_, h * of_head + offset, rows));
      };
      take(qkvz, "in_proj_qkvz", unit, 0, k);
      take(qkvz, "in_proj_qkvz", unit, k, k);
      take(qkvz, "in_proj_qkvz", unit, 2 * k, v);
      take(qkvz, "in_proj_qkvz", unit, 2 * k + v, v);
      take(ba, "in_proj_ba", 2 * group, 0, group);
      take(ba, "in_proj_ba", 2 * group, group, group);
    } else {
      const std::uint64_t keys = linear.key_dim();
      const std::uint64_t values = linear.value_dim();
      const auto part = [&](const char* name, std::uint64_t rows, std::uint64_t offset,
                            std::uint64_t of_head) {
        return rows_of(at(name), rows, hidden_, offset + first * of_head, heads * of_head);
      };
      qkvz = {part("in_proj_qkv", 2 * keys + values, 0, k), part("in_proj_qkv", 2 * keys + values, keys, k),
              part("in_proj_qkv", 2 * keys + values, 2 * keys, v), part("in_proj_z", values, 0, v)};
      ba = {part("in_proj_b", linear.num_value_heads, 0, group),
            part("in_proj_a", linear.num_value_heads, 0, group)};
    }
    add("in_proj_qkvz", Sharding::kColumn, linear.num_layers, std::move(qkvz));
    // Not quantised by SGLang's loaders of either model.
    add("in_proj_ba", Sharding::kColumn, linear.num_layers, std::move(ba)).quantised = false;
    add("out_proj", Sharding::kRow, linear.num_layers,
        {columns_of(at("out_proj"), hidden_, linear.value_dim(), first * v, heads * v)});
  }

  // The latent projections are on every rank, what comes out of them is cut by heads. Decode absorbs kv_b
  // into queries and outputs; the weights read are the same.
  void add_latent_attention() {
    const MlaConfig& mla = model_.mla;
    const std::uint32_t layers = attention_layers();
    const std::uint32_t heads = model_.num_attention_heads;
    TensorSlice kv_a = whole("self_attn.kv_a_proj_with_mqa",
                             std::uint64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim, hidden_);
    if (mla.q_lora_rank > 0) {
      add("fused_qkv_a_proj_with_mqa", Sharding::kReplicated, layers,
          {whole("self_attn.q_a_proj", mla.q_lora_rank, hidden_), std::move(kv_a)});
      add("q_b_proj", Sharding::kColumn, layers,
          {head_rows("self_attn.q_b_proj", heads, shard_.q_heads, model_.head_dim, mla.q_lora_rank)});
    } else {
      add("q_proj", Sharding::kColumn, layers,
          {head_rows("self_attn.q_proj", heads, shard_.q_heads, model_.head_dim, hidden_)});
      add("kv_a_proj_with_mqa", Sharding::kReplicated, layers, {std::move(kv_a)});
    }
    // Per head, the rows that make the key without rotation, then those that make the value.
    add("kv_b_proj", Sharding::kColumn, layers,
        {head_rows("self_attn.kv_b_proj", heads, shard_.q_heads,
                   std::uint64_t{mla.qk_nope_head_dim} + mla.v_head_dim, mla.kv_lora_rank)});
    if (model_.attn_output_gate)  // Kimi K3
      add("g_proj", Sharding::kColumn, layers,
          {head_rows("self_attn.g_proj", heads, shard_.q_heads, mla.v_head_dim, hidden_)});
    add_output(mla.v_head_dim, heads, shard_.q_heads, layers);
    if (model_.is_sparse()) add_indexer();
  }

  // models/deepseek_v4.py: queries by way of a low rank, one latent, the output by groups of heads; what
  // compresses tokens (by two tokens' worth of keys and gates where groups of 4 overlap, dsv4/compressor.py),
  // and the indexer with a compressor of its own, on every rank. What weighs the streams of hyper-connections
  // is in fp32 and small; add_vectors() has it.
  void add_compressed_attention() {
    const CompressedConfig& compressed = model_.compressed;
    const std::uint32_t layers = attention_layers();
    const std::uint64_t dim = model_.head_dim;
    const std::uint64_t heads = model_.num_attention_heads;
    const Split split = shard_.attention;
    if (compressed.o_groups % split.size != 0)
      throw_user_error("--tp {} does not divide the {} groups of heads of {}; use a divisor of it",
                       split.size, compressed.o_groups, model_.name);
    const std::uint64_t mine = compressed.o_groups / split.size * std::uint64_t{compressed.o_lora_rank};
    add("wqkv_a", Sharding::kReplicated, layers,
        {whole("attn.wq_a", compressed.q_lora_rank, hidden_), whole("attn.wkv", dim, hidden_)});
    add("wq_b", Sharding::kColumn, layers,
        {head_rows("attn.wq_b", heads, shard_.q_heads, dim, compressed.q_lora_rank)});
    add("wo_a", Sharding::kColumn, layers,
        {rows_of("attn.wo_a", compressed.o_groups * std::uint64_t{compressed.o_lora_rank},
                 heads * dim / compressed.o_groups, mine * split.rank, mine)});
    add("wo_b", Sharding::kRow, layers,
        {columns_of("attn.wo_b", hidden_, compressed.o_groups * std::uint64_t{compressed.o_lora_rank},
                    mine * split.rank, mine)});
    for (const AttentionKind& kind : model_.attention) {
      if (kind.compress_ratio == 0) continue;
      const std::uint64_t made = kind.indexer ? 4 : 2;
      const auto add_plain = [&](const char* name, std::uint64_t rows) {
        add(name, Sharding::kReplicated, kind.num_layers, {whole(name, rows, hidden_)}).quantised = false;
      };
      add_plain(kind.indexer ? "compressor4.wkv_gate" : "compressor128.wkv_gate", made * dim);
      if (!kind.indexer) continue;
      const IndexerConfig& indexer = model_.indexer;
      add("indexer.wq_b", Sharding::kReplicated, kind.num_layers,
          {whole("attn.indexer.wq_b", std::uint64_t{indexer.num_heads} * indexer.head_dim,
                 compressed.q_lora_rank)});
      add_plain("indexer.weights_proj", indexer.num_heads);
      add_plain("indexer.compressor.wkv_gate", made * indexer.head_dim);
    }
  }

  // Every rank has all of it. (dsa_indexer.py)
  void add_indexer() {
    const IndexerConfig& indexer = model_.indexer;
    const std::string at = "self_attn.indexer.";
    add("indexer.wq_b", Sharding::kReplicated, indexer.num_layers,
        {whole(at + "wq_b", std::uint64_t{indexer.num_heads} * indexer.head_dim, model_.mla.q_lora_rank)});
    add("indexer.wk", Sharding::kReplicated, indexer.num_layers,
        {whole(at + "wk", indexer.head_dim, hidden_)});
    add("indexer.weights_proj", Sharding::kReplicated, indexer.num_layers,
        {whole(at + "weights_proj", indexer.num_heads, hidden_)})
        .quantised = false;
  }

  void add_gated(ModelPart part, Split split, const std::string& prefix, const std::string& at,
                 std::uint64_t width, bool bias, std::uint32_t layers) {
    const std::uint64_t mine = width / split.size;
    const std::uint64_t first = mine * split.rank;
    std::vector<TensorSlice> slices = {rows_of(at + "up_proj", width, hidden_, first, mine)};
    if (!model_.ungated_mlp)
      slices.insert(slices.begin(), rows_of(at + "gate_proj", width, hidden_, first, mine));
    if (model_.names.fused_projections || model_.names.fused_gate_up) fuse(at + "gate_up_proj", slices);
    WeightSpec& gate_up = add(prefix + "gate_up_proj", Sharding::kColumn, layers, std::move(slices));
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
    if (moe().router_bias || moe().scoring >= ExpertScoring::kSigmoid) gate.bias = moe().num_experts;
    // Of every rank, in the class of Nemotron-H.
    if (const std::uint64_t latent = moe().latent_size; latent > 0) {
      add("fc1_latent_proj", Sharding::kReplicated, moe().num_layers,
          {whole("mlp.fc1_latent_proj", latent, hidden_)})
          .part = ModelPart::kRouter;
      add("fc2_latent_proj", Sharding::kReplicated, moe().num_layers,
          {whole("mlp.fc2_latent_proj", hidden_, latent)})
          .part = ModelPart::kRouter;
    }
    if (moe().num_shared_experts == 0) return;
    const std::size_t shared = list_.size();
    add_gated(ModelPart::kSharedExperts, shard_.shared_experts, "shared_experts.",
              model_.names.mlp + model_.names.shared,
              std::uint64_t{moe().num_shared_experts} * moe().intermediate_size, false, moe().num_layers);
    if (shard_.num_fused_shared_experts > 0) {
      for (std::size_t i = shared; i < list_.size(); ++i) list_[i].role = WeightRole::kExperts;
    }
  }

  // A part of their number, and of each a part of its width.
  void add_experts() {
    const std::uint64_t width = moe().intermediate_size;
    const std::uint64_t mine = width / shard_.expert_width.size;
    const std::uint64_t first = mine * shard_.expert_width.rank;
    const auto of_experts = [&](WeightSpec& spec) {
      spec.role = WeightRole::kExperts;
      spec.part = ModelPart::kExperts;
      spec.experts = (moe().num_experts + shard_.layout.redundant_experts) / shard_.experts.size;
      if (moe().expert_bias) spec.bias = spec.n;
    };
    const std::uint64_t given = moe().latent_size > 0 ? moe().latent_size : hidden_;
    std::vector<TensorSlice> up = {rows_of("up_proj", width, given, first, mine)};
    if (!model_.ungated_mlp) up.insert(up.begin(), rows_of("gate_proj", width, given, first, mine));
    of_experts(add("experts.gate_up_proj", Sharding::kColumn, moe().num_layers, std::move(up)));
    of_experts(add("experts.down_proj", Sharding::kRow, moe().num_layers,
                   {columns_of("down_proj", given, width, first, mine)}));
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
    const std::uint64_t of_norm = model_.norm_bias ? 2 * hidden_ : hidden_;
    if (model_.pre_norms) add_vector("input_layernorm", of_norm, layers);
    if (!model_.parallel_block) add_vector("post_attention_layernorm", of_norm, layers);
    if (model_.post_norms) {
      if (model_.pre_norms) add_vector("pre_feedforward_layernorm", hidden_, layers);
      add_vector("post_feedforward_layernorm", hidden_, layers);
    }
    if (shard_.stage.last()) add_vector("norm", of_norm, 1);
    if (model_.qk_norm) {
      const bool all = model_.qk_norm_over_heads || model_.qk_norm_by_head;
      add_vector("q_norm", model_.head_dim * (all ? shard_.q_heads.count() : 1), attention_layers());
      add_vector("k_norm", model_.head_dim * (all ? shard_.kv_heads.count() : 1), attention_layers());
      if (model_.is_block_sparse())
        add_vector("index_norms", std::uint64_t{2} * model_.indexer.head_dim, model_.indexer.num_layers);
    }
    if (model_.is_mla()) {
      if (model_.mla.q_lora_rank > 0) add_vector("q_a_layernorm", model_.mla.q_lora_rank, attention_layers());
      add_vector("kv_a_layernorm", model_.mla.kv_lora_rank, attention_layers());
      if (model_.is_sparse())  // weight and bias
        add_vector("indexer.k_norm", 2 * std::uint64_t{model_.indexer.head_dim}, model_.indexer.num_layers);
    }
    if (model_.is_compressed()) {
      const CompressedConfig& compressed = model_.compressed;
      const std::uint64_t streams = compressed.streams;
      add_vector("q_norm", compressed.q_lora_rank, layers);
      add_vector("kv_norm", model_.head_dim, layers);
      // Two matrices of fp32 a layer, in elements of 16 bit.
      add_vector("hyper_connections", 2 * 2 * (2 + streams) * streams * streams * hidden_, layers);
      // Experts of every token id.
      const std::uint32_t hashed = std::min(compressed.num_hash_layers, layers);
      if (hashed > 0) add_vector("tid2eid", std::uint64_t{model_.vocab_size} * moe().top_k, hashed);
    }
    if (model_.is_hybrid_linear()) {
      const LinearLayers linear = linear_layers(model_, shard_);
      if (linear.conv_kernel > 1) add_vector("conv1d", linear.conv_dim() * linear.conv_kernel, linear.count);
      if (linear.kind != LinearKind::kShortConv) {
        add_vector("A_log", linear.num_v_heads, linear.count);
        add_vector("dt_bias", linear.num_v_heads, linear.count);
        add_vector("linear_norm", linear.v_dim, linear.count);
      }
    }
    if (moe().shared_gate) add_vector("shared_expert_gate", hidden_, moe().num_layers);
    if (moe().latent_norm) add_vector("routed_expert_norm", moe().latent_size, moe().num_layers);
    // A norm and a projection to one number, before attention and before the MLP.
    if (model_.residual_block > 0) add_vector("attention_residuals", 4 * hidden_, layers);
    if (model_.attention_sinks) add_vector("sinks", shard_.q_heads.count(), layers);
  }

  const ModelConfig& model_;
  const Shard& shard_;
  const std::uint64_t hidden_ = model_.hidden_size;
  std::vector<WeightSpec> list_;
};

}  // namespace

std::vector<WeightSpec> weight_list(const ModelConfig& model, const Shard& shard) {
  return with_formats(model, List(model, shard).make());
}

const WeightSpec& weight_named(const std::vector<WeightSpec>& weights, std::string_view name,
                               std::uint32_t attention) {
  for (const WeightSpec& weight : weights) {
    if (weight.name == name && weight.attention == attention) return weight;
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
  const std::vector<WeightSpec> weights = weight_list(model, shard);
  for (const WeightSpec& weight : weights) {
    if (!weight.tied)
      bytes += (weight.format.bytes(weight.n, weight.k) + weight.bias * model.weight_bytes) * weight.copies();
  }
  if (model.vision.served)
    bytes += vision_weight_bytes(model.vision, {shard.layout.attn_tp_size(), model.vision.replicated});
  return model.quantization.online ? bytes + loading_leftover_bytes(weights) : bytes;
}

}  // namespace tpsim::rank
