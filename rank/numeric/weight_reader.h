// What one layer computes with on one rank (rank/numeric/rank_weights.h says how it is cut), and how it is
// read: rows or columns of tensors, as PackedMatrix or as plain vectors; gated MLPs and
// experts of one tensor per expert and projection, or all fused in one, as Transformers 5 and gpt-oss keep
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/linear/packed_matrix.h"
#include "rank/llm/layers.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// A gated MLP, or one expert: gate_up is [2 x width, hidden] (gate first; without gates [width, hidden]),
// down [hidden, width].
struct MlpWeights {
  PackedMatrix gate_up, down;
  std::vector<float> gate_up_bias, down_bias;  // empty: none
  std::uint32_t width = 0;                     // of this rank
  double limit = 0;                            // LayerConfig::mlp_limit, or of experts expert_limit
};

struct MoeWeights {
  PackedMatrix router;  // [experts, hidden], fp32 on every rank
  std::vector<float> router_bias, correction_bias;
  std::vector<std::uint32_t> experts_of_token;  // [vocabulary, top_k]; empty: the router chooses
  std::uint32_t first_expert = 0;               // of this rank
  std::vector<MlpWeights> experts;              // of this rank
  MlpWeights shared;                            // width 0: none
  std::vector<float> shared_gate;               // [hidden]; empty: none
  PackedMatrix to_latent, from_latent;  // what routed experts are given and give; empty: the hidden state
  // Gemma 4. The norm of what the router reads, its scale and 1 / sqrt(hidden_size) included; factors of the
  // experts' weights; and the norms behind the dense MLP, before the experts and behind them.
  std::vector<float> router_norm, expert_scales, dense_post_norm, pre_norm, post_norm;
};

struct MlaWeights {
  PackedMatrix q_a, q_b;  // with q_lora_rank; else q_b is the whole projection
  std::vector<float> q_a_norm;
  PackedMatrix kv_a;  // [kv_lora_rank + qk_rope_head_dim, hidden]
  std::vector<float> kv_a_norm;
  std::vector<PackedMatrix> absorb_k;  // per head of this rank: [kv_lora_rank, qk_nope_head_dim]
  std::vector<PackedMatrix> absorb_v;  // per head of this rank: [v_head_dim, kv_lora_rank]
  PackedMatrix expand;  // kv_b_proj: [heads of this rank x (qk_nope_head_dim + v_head_dim), kv_lora_rank]
};

// The indexer of sparse attention, the same on every rank; MiniMax M3's queries are those of the rank's KV
// heads.
struct IndexerWeights {
  PackedMatrix q;      // [heads x dim, q_lora_rank or hidden]
  PackedMatrix k;      // [dim, hidden]
  PackedMatrix heads;  // [heads, hidden]: the weights of the heads
  std::vector<float> k_norm, k_norm_bias, q_norm;
};

// A linear layer (LinearKind). Of each kind, what belongs to this rank's heads, in their order.
struct LinearAttentionWeights {
  PackedMatrix qkvz;  // q, k, v, and the gate of the output; KDA: q, k, v; LFM2: as in_proj of weight_list()
  PackedMatrix ba;    // write strengths, then decays, of the value heads; KDA: strengths
  PackedMatrix out;
  // KDA: decays and gates of the output, of every channel, by way of one head's width each.
  PackedMatrix narrow, decays, gates;
  std::vector<float> conv;  // [channels of q, k and v, conv_kernel]
  std::vector<float> conv_bias;
  std::vector<float> a_log, dt_bias, norm;
  std::vector<float> skip;  // Mamba 2: D
};

// What makes one entry of several tokens (DeepSeek V4); the same on every rank.
struct CompressorWeights {
  PackedMatrix kv_gate;  // keys, then gates; where groups overlap (ratio 4) of the next and the own one
  std::vector<float> position;  // of a group's tokens, added to their gates: [ratio, gates]
  std::vector<float> norm;
};

// Attention over compressed tokens. The indexer's compressor and heads: with ratio 4 alone.
struct CompressedWeights {
  PackedMatrix qkv_a, q_b;  // [q_lora_rank + head_dim, hidden], [heads of this rank x head_dim, q_lora_rank]
  std::vector<float> q_norm, kv_norm;
  CompressorWeights entries, index;
  PackedMatrix index_q, index_heads;
  std::vector<PackedMatrix> o_a;  // of each group of this rank's heads
  PackedMatrix o_b;
};

// Hyper-connections: how streams of the hidden state go into a sublayer and what it says into them; or, last,
// into the head. The same on every rank.
struct StreamWeights {
  PackedMatrix mix;  // [(2 + streams) x streams, or streams, streams x hidden], fp32
  std::vector<float> base, scale;
};

struct LayerWeights {
  std::vector<float> input_norm,
      post_attention_norm;  // before attention; before the MLP, or after attention
  std::vector<float> pre_feedforward_norm, post_feedforward_norm;  // Gemma 2, 3
  PackedMatrix qkv, o;
  PackedMatrix head_gates;  // [heads, hidden]; empty: none
  std::vector<float> qkv_bias, o_bias;
  std::vector<float> q_norm, k_norm;
  std::vector<float> sinks;  // of this rank's heads
  float scalar = 1;          // of what leaves the layer
  MlaWeights mla;
  CompressedWeights compressed;
  StreamWeights attention_streams, mlp_streams;
  IndexerWeights indexer;
  LinearAttentionWeights linear;
  MlpWeights mlp;
  MoeWeights moe;
};

class WeightReader {
 public:
  WeightReader(const TensorSource& source, WeightType type) : source_(source), type_(type) {}

  const TensorSource& source() const { return source_; }
  WeightType type() const { return type_; }

  // The slices of a weight, one above the other, out of the tensors `at` + slice + ".weight". Rows beyond a
  // tensor's are zero.
  PackedMatrix matrix(const std::string& at, const WeightSpec& weight) const {
    return matrix(at, weight.slices, type_);
  }
  PackedMatrix matrix(const std::string& at, const std::vector<TensorSlice>& slices, WeightType type) const;
  // The rows of `at` + slice + ".bias" that go with it; empty where the weight has none.
  std::vector<float> bias(const std::string& at, const WeightSpec& weight) const;
  std::vector<float> vector(const std::string& name, std::uint64_t size) const;
  // Elements [first, first + count) of a tensor of this shape.
  std::vector<float> range(const std::string& name, const std::vector<std::uint64_t>& shape,
                           std::uint64_t first, std::uint64_t count) const;

 private:
  const TensorSource& source_;
  WeightType type_;
};

// The gated MLP of layer `at` ("…layers.3.") with these weights. The bias of the sum over the ranks is added
// by one of them.
MlpWeights load_mlp(const WeightReader& reader, const std::string& at, const WeightSpec& gate_up,
                    const WeightSpec& down, bool adds_down_bias);

// The router, experts and shared experts of layer `at`. `weights`: weight_list() of the rank.
MoeWeights load_moe(const ModelConfig& model, const Shard& shard, const std::vector<WeightSpec>& weights,
                    const WeightReader& reader, const std::string& at, const LayerConfig& layer);

}  // namespace tpsim::rank
