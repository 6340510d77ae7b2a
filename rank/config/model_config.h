// The architecture of a model: the numbers of its config.json that decide shapes. What follows from them on a
// rank, its attention layers and its weights, is rank/llm/layers.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rank/config/architecture.h"
#include "rank/config/quantization_config.h"
#include "rank/config/vision_config.h"

namespace tpsim::rank {

// Dual chunk attention (An et al. 2024; Qwen2.5-1M): a sequence is cut into chunks, and the rotations are
// such that no query is ever farther from a key than the model was trained for.
//
// Keys are rotated by their place in their chunk. A query is rotated three times: for its own chunk, for the
// chunk before it (succ) and for all before that (inter). Within a chunk distances stay what they are; so do
// those of the nearest `local_size` tokens of the chunk before; farther ones stop at chunk_size.
//
// Source: SGLang 0.5.12, layers/rotary_embedding/rope_variant.py (DualChunkRotaryEmbedding), the last release
// that has it. Its two other rotations only choose tokens for the sparse variant.
struct DualChunkConfig {
  std::uint32_t chunk_size = 0;  // tokens; the largest distance. 0: plain attention
  std::uint32_t local_size = 0;  // tokens
  // Beyond it q.k grows with the logarithm of the length, as with YaRN. 0: it does not.
  std::uint32_t original_max_position_embeddings = 0;
  bool dense_said = false;  // the config itself turns the sparse variant off

  bool enabled() const { return chunk_size > 0; }
  std::uint32_t chunk_len() const { return chunk_size - local_size; }
  // Factor on q.k in a sequence of `seq_len` tokens: once on the query and once on the key.
  double scaling(std::uint32_t seq_len) const {
    if (original_max_position_embeddings == 0 || seq_len <= original_max_position_embeddings) return 1;
    const double once = 0.1 * std::log(static_cast<double>(seq_len) / original_max_position_embeddings) + 1;
    return once * once;
  }
};

// By how many steps the key and the query of the token at `position` are rotated.
struct ChunkRotations {
  std::uint32_t key = 0;
  std::uint32_t query = 0;        // meeting its own chunk
  std::uint32_t query_succ = 0;   // meeting the chunk before
  std::uint32_t query_inter = 0;  // meeting all before that
};
inline ChunkRotations chunk_rotations(const DualChunkConfig& config, std::uint32_t position) {
  const std::uint32_t len = config.chunk_len();
  const std::uint32_t in_chunk = position % len;
  return {in_chunk, in_chunk, std::min(in_chunk + len, config.chunk_size),
          std::min(2 * len - 1, config.chunk_size)};
}

// How experts are chosen for a token.
enum class ExpertScoring : std::uint8_t {
  kSoftmaxThenTopK,  // softmax over all experts, then the top_k of it (Qwen3-MoE, DeepSeek V2)
  kTopKThenSoftmax,  // the top_k logits, softmax over those (Mixtral, gpt-oss)
  kTopKThenSigmoid,  // the top_k logits, sigmoid of each (Llama 4)
  kSigmoid,          // sigmoid per expert, chosen with the correction bias, weighted without (DeepSeek V3)
  kSqrtSoftplus,     // the same with the root of softplus (DeepSeek V4)
};

struct MoeConfig {
  std::uint32_t num_experts = 0;  // 0: dense MLP in every layer
  std::uint32_t top_k = 0;
  std::uint32_t intermediate_size = 0;   // of one expert
  std::uint32_t num_layers = 0;          // layers with experts; the others have a dense MLP
  std::uint32_t num_shared_experts = 0;  // always on, together shared x intermediate_size wide
  std::uint32_t num_groups = 1;          // experts are chosen within the best topk_groups groups
  std::uint32_t topk_groups = 1;
  // The score of a group: its best expert (DeepSeek V2), or the sum of its best two (V3).
  bool group_score_top2 = false;
  ExpertScoring scoring = ExpertScoring::kSoftmaxThenTopK;
  bool normalize_weights = false;    // norm_topk_prob: the chosen weights add up to 1
  double routed_scaling_factor = 1;  // on the chosen weights, after normalising
  bool weight_on_input = false;      // Llama 4: an expert's weight scales what it is given
  // Shared experts that SGLang runs as routed ones that every token goes to, in the same call, where experts
  // are not distributed (shared_experts_fusion_disable_reason of models/deepseek_v2.py and glm4_moe.py).
  std::uint32_t num_fused_shared_experts = 0;
  bool router_bias = false;   // gpt-oss: the router has a bias
  bool softmax_bias = false;  // ERNIE 4.5: a correction bias chooses among softmax scores, too
  bool expert_bias = false;   // gpt-oss: experts' projections have biases
  bool shared_gate = false;   // Qwen3-Next: what the shared expert says is weighed by a sigmoid
  // Gemma 4: the router norms its input and scales every channel, then each expert's weight; experts and
  // what is always on (the dense MLP) read and leave norms of their own.
  bool gemma_router = false;
  // Elements of what routed experts are given, by a projection; 0: the hidden state.
  std::uint32_t latent_size = 0;
  bool latent_norm = false;  // Kimi K3: what they said is normed before it is projected back
};

// Multi-head latent attention (DeepSeek V2, V3): keys and values are projections of one latent vector.
struct MlaConfig {
  std::uint32_t kv_lora_rank = 0;  // elements of the latent; 0: plain multi-head attention
  std::uint32_t q_lora_rank = 0;   // 0: queries are projected directly
  std::uint32_t qk_nope_head_dim = 0;
  std::uint32_t qk_rope_head_dim = 0;
  std::uint32_t v_head_dim = 0;
};

// The lightning indexer of DeepSeek sparse attention (V3.2, GLM-5): a query attends to the top_k tokens that
// it scores highest; or of MiniMax M3: to the blocks that hold them, chosen for each KV head.
struct IndexerConfig {
  std::uint32_t num_heads = 0;   // index_n_heads; 0: every token is attended to
  std::uint32_t head_dim = 0;    // index_head_dim, of the one key that all heads share, too
  std::uint32_t top_k = 0;       // index_topk, tokens
  std::uint32_t num_layers = 0;  // that have an indexer; the others take the selection of the one before
  std::uint32_t rope = 0;   // index into ModelConfig::ropes: its queries and keys may turn in another way
  std::uint32_t block = 0;  // MiniMax M3: tokens of a block; 0: tokens are chosen one by one
  std::uint32_t local_blocks = 1;  // the last ones, which are always chosen
};

// Attention over compressed tokens (DeepSeek V4). Every layer attends to its last sliding_window tokens and,
// where it compresses (LayerConfig::compress_ratio), to one entry for each so many tokens before: to all of
// them, or to the best that its indexer finds (ratio 4: CSA; 128: HCA). One latent of head_dim elements is
// key and value of all heads. Around it hyper-connections: several streams of the hidden state, mixed before
// and behind attention and experts.
struct CompressedConfig {
  std::uint32_t q_lora_rank = 0;    // 0: the model has no such attention
  std::uint32_t rope_head_dim = 0;  // last elements of the latent, which the cache keeps in 16 bit
  std::uint32_t o_groups = 0;       // heads of a group are projected together, to o_lora_rank elements
  std::uint32_t o_lora_rank = 0;
  std::uint32_t streams = 1;          // hc_mult
  std::uint32_t sinkhorn_iters = 20;  // that make what mixes them doubly stochastic (hc_sinkhorn_iters)
  double stream_eps = 1e-6;           // hc_eps
  std::uint32_t num_hash_layers = 0;  // whose experts a table of token ids chooses
};

// What stands in a layer in place of attention.
enum class LinearKind : std::uint8_t {
  kGatedDelta,  // Qwen3-Next, Qwen3.5: gated delta-nets
  kKda,         // Kimi Linear: the same with a decay for each channel of a key, from a projection of low rank
  kShortConv,   // LFM2: a gated convolution over the last tokens, and no other state
  kMamba2,      // Nemotron-H: keys (B) and queries (C) of groups of heads, after a convolution
  kLightning,   // Ling 2.5: states that fade by a number a head, without a convolution
};

// Such layers have a state of fixed size, instead of keys and values. One key head serves num_value_heads /
// num_key_heads value heads; kShortConv has value heads of one element each, and no keys.
struct LinearAttentionConfig {
  LinearKind kind = LinearKind::kGatedDelta;
  std::uint32_t num_key_heads = 0;
  std::uint32_t num_value_heads = 0;  // 0: the model has no such layers
  std::uint32_t key_head_dim = 0;
  std::uint32_t value_head_dim = 0;
  std::uint32_t conv_kernel = 0;  // tokens that the convolution before it sees
  std::uint32_t num_layers = 0;
  std::uint32_t state_bytes = 4;  // of an element of the recurrent state (mamba_ssm_dtype)
  std::uint32_t chunk = 64;       // tokens that prefill takes at once, between states
  std::uint32_t norm_groups = 0;  // of the norm of its output, which are not cut over ranks; 0: none
  // The checkpoint keeps q, k, v, z (and b, a) of one key head together, and not each in a tensor.
  bool packed = false;
  bool conv_bias = false;       // kMamba2
  bool full_rank_gate = false;  // kKda, of Kimi K3: gates of the output come from the hidden state at once

  std::uint32_t key_dim() const { return num_key_heads * key_head_dim; }
  std::uint32_t value_dim() const { return num_value_heads * value_head_dim; }
};

enum class RopeType : std::uint8_t {
  kDefault,
  kLinear,
  kDynamic,
  kLlama3,
  kYarn,
  kLongRope,      // Phi-3: pairs slow down by factors of their own, others beyond the original context
  kProportional,  // Gemma 4: pairs are those of whole heads, and only the first partial_rotary_factor turn
};

// Rotary position embedding, as rope_scaling (Transformers 4) or rope_parameters (5) say it.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double factor = 1;
  std::uint32_t original_max_position_embeddings = 0;       // tokens; 0: not said
  double low_freq_factor = 1, high_freq_factor = 4;         // llama3
  double beta_fast = 32, beta_slow = 1;                     // yarn
  double mscale = 0, mscale_all_dim = 0;                    // yarn, DeepSeek; 0: not said
  double attention_factor = 0;                              // yarn; 0: not said
  bool truncate = true;                                     // yarn: round the correction range (gpt-oss: no)
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: of each pair, within that and beyond
  double partial_rotary_factor = 1;                         // share of a head that is rotated
  std::uint32_t head_dim = 0;                               // of its layers' heads; 0: the model's
  bool interleaved = false;  // pairs of neighbours are rotated (DeepSeek), not halves
  // Qwen-VL: so many pairs of a head turn by time, by row and by column of an image's token; text has one
  // position for all three. All 0: there is one position. Interleaved: time, row and column take turns until
  // their pairs are used up, and time has the rest.
  std::array<std::uint32_t, 3> mrope_section = {};
  bool mrope_interleaved = false;
  bool has_mrope() const { return mrope_section[0] + mrope_section[1] + mrope_section[2] > 0; }
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

enum class Activation : std::uint8_t {
  kSilu,
  kGeluTanh,
  kGptOssSwiGlu,  // clamped to +-7, sigmoid(1.702 x), and up + 1
};

// Heads of layers that have not the model's (gemma 4, Step 3.5, MiMo V2). All 0: they have.
struct AttentionHeads {
  std::uint32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool keys_are_values = false;  // gemma 4: no projection of its own makes the values
  std::uint32_t v_head_dim = 0;  // of a value; 0: head_dim, as of a key
  std::uint32_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  friend bool operator==(const AttentionHeads&, const AttentionHeads&) = default;
};

// Layers that attend in the same way.
struct AttentionKind {
  std::uint32_t num_layers = 0;
  std::uint32_t sliding_window = 0;   // tokens; 0 = full attention
  bool indexer = false;               // sparse attention: with an indexer of their own
  std::uint32_t attention_chunk = 0;  // tokens; 0 = all
  std::uint32_t compress_ratio = 0;   // DeepSeek V4: tokens of a compressed one; 0: none are kept
  AttentionHeads heads;
};

// One layer.
struct LayerConfig {
  static constexpr std::uint32_t kNoRope = ~0U;

  std::uint32_t sliding_window = 0;   // tokens, the token itself included; 0 = full attention
  std::uint32_t attention_chunk = 0;  // Llama 4: a token attends within its chunk of so many; 0 = all
  std::uint32_t compress_ratio = 0;   // tokens of a compressed one (CompressedConfig); 0: none
  std::uint32_t rope = 0;             // index into ModelConfig::ropes, or kNoRope
  std::uint32_t attention = 0;        // index into ModelConfig::attention
  bool moe = false;
  bool hashed = false;            // DeepSeek V4: a table of token ids chooses its experts
  bool bare = false;              // Nemotron-H: no MLP and no experts, and so one norm and one sum over ranks
  std::uint32_t block = 0;        // Nemotron-H: its first block in the checkpoint (TensorNames::blocks)
  std::uint32_t kv_layer = 0;     // its place among the layers that have keys and values
  bool linear = false;            // a gated delta-net, and no attention
  bool indexer = false;           // sparse attention: chooses its tokens itself
  std::uint32_t index_layer = 0;  // its place among the layers that have an indexer
  AttentionHeads heads;
  // Step 3.5: silu(gate) of experts is this at most and up within it on both sides; the same of a dense MLP
  // and shared experts. 0: no bound. (ModelConfig::limits_gates: gate itself is, before its SiLU.)
  double expert_limit = 0, mlp_limit = 0;
};

// Llama 4: queries of layers without rotation grow with their position, by
// log(floor((position + 1) / floor_scale) + 1) * attn_scale + 1.
struct TemperatureTuning {
  double floor_scale = 0;  // tokens; 0: none
  double attn_scale = 0;
  // Ministral 3: so do those of all layers, by log(floor(position / floor_scale) + 1) * attn_scale + 1.
  bool everywhere = false;

  double factor(std::uint32_t position) const {
    return std::log(std::floor((position + (everywhere ? 0.0 : 1.0)) / floor_scale) + 1) * attn_scale + 1;
  }
};

// How a checkpoint lays the weights of its experts.
enum class ExpertLayout : std::uint8_t {
  kRows,            // a tensor per expert and projection; or fused [experts, 2 x width, hidden], gate first
  kColumns,         // [experts, hidden, 2 x width], gate first (Llama 4)
  kColumnsInTurns,  // the same with gate and up in turns, and biases (gpt-oss)
  kStacked,         // a tensor per projection, [experts, width, hidden] and back (Step 3.5)
};

// What a checkpoint calls its tensors, where models differ.
struct TensorNames {
  std::string mlp = "mlp.";                // of a layer; Llama 4: "feed_forward."
  std::string router = "gate";             // in it; gpt-oss, Llama 4: "router"
  std::string shared = "shared_experts.";  // in it; Llama 4, Qwen3-Next: "shared_expert."
  // Phi-3: qkv_proj and gate_up_proj are one tensor each, queries and gates first.
  bool fused_projections = false;
  bool fused_qkv = false;      // qkv_proj alone is one (Ling)
  bool fused_gate_up = false;  // gate_up_proj alone is one (GLM-4, Granite)
  // InternLM2: queries, key and value of a KV head lie together, in wqkv.
  bool grouped_qkv = false;
  // Gates of each element of a head (attn_output_gate) are g_proj, and not in turns with the queries.
  bool gates_apart = false;
  // Nemotron-H: what mixes tokens and what does not are blocks of their own, each with one norm.
  bool blocks = false;
  ExpertLayout experts = ExpertLayout::kRows;
  // Any other: what stands in the usual name, and what in the checkpoint's (rank/weights/renamed_source.h).
  std::vector<std::pair<std::string, std::string>> renamed;
};

struct ModelConfig {
  std::string name;
  std::string architecture;        // of config.json
  ArchitectureFacts facts;         // of that
  std::string dtype = "bfloat16";  // of the checkpoint: bfloat16, float16 or float32
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t first_layer = 0;  // of a pipeline stage: the place of layers[0] in the whole model
  std::uint32_t num_attention_heads = 0;
  std::uint32_t num_key_value_heads = 0;
  std::uint32_t head_dim = 0;  // MLA: qk_nope_head_dim + qk_rope_head_dim
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;           // tokens; rope scaling included, as SGLang derives it
  std::uint32_t max_position_embeddings = 0;  // tokens, as the config says it
  // Layers for the next token that the checkpoint has; configs that say nothing of families that have them
  // mean one.
  std::uint32_t num_nextn_predict_layers = 1;
  bool tie_word_embeddings = false;
  // A checkpoint whose projections are interleaved for so many ranks: attention is cut over a divisor. 0:
  // any.
  std::uint32_t fused_qkv_ranks = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool ungated_mlp = false;  // Nemotron-H: one projection up, of MLPs and of experts, and no gate
  std::uint32_t num_bare_layers = 0;
  bool qk_norm = false;
  bool qk_norm_by_head = false;     // Cohere: each head has weights of its own
  bool qk_norm_rotated = false;     // Hunyuan V1: of queries and keys once they are rotated
  bool head_gates = false;          // Step 3.5: a projection weighs what each head says by a sigmoid
  bool softplus_gates = false;      // Laguna: gates, of heads or elements, are no sigmoids
  bool qk_norm_over_heads = false;  // MiniMax: over all heads of a layer at once, which its ranks share
  QuantizationConfig quantization;  // the checkpoint's; with --quantization what the server makes of it
  std::uint32_t weight_bytes = 2;   // per parameter; float32 checkpoints are served in 16 bit, as by SGLang
  std::vector<AttentionKind> attention;  // counted from `layers`; full attention first
  std::vector<LayerConfig> layers;       // num_layers entries
  std::vector<RopeConfig> ropes;         // one, or two where window layers have their own (Gemma 3)
  MoeConfig moe;
  MlaConfig mla;
  IndexerConfig indexer;
  CompressedConfig compressed;
  DualChunkConfig dual_chunk;
  LinearAttentionConfig linear;
  VisionConfig vision;
  // Tokens that SGLang's pool of window layers keeps after each sequence; 0: it gives the model no such pool
  // (is_hybrid_swa_model of configs/model_config.py less what model_overrides/ disable).
  std::uint32_t swa_pool_window = 0;

  // What numeric execution needs besides shapes.
  double rms_norm_eps = 1e-6;
  bool norm_plus_one = false;  // Gemma: norm weights are stored less 1
  bool value_norm = false;     // Gemma 4: values are normed, without weights
  bool layer_scalars = false;  // Gemma 4: what leaves a layer is multiplied by a number of its own
  bool post_norms = false;     // Gemma 2, 3: also norms after attention and MLP
  bool pre_norms = true;       // OLMo 2, EXAONE 4: no norms but those
  // Norms take the mean off, too; with a bias, which stands behind the weights wherever those are kept.
  bool layer_norms = false, norm_bias = false;
  bool parallel_block = false;  // Cohere: the MLP reads what attention reads, and there is one norm a layer
  // Kimi K3 (attention residuals): of so many layers the sums are kept, and each sublayer reads a mixture of
  // those before it; 0: the residual is a sum.
  std::uint32_t residual_block = 0;
  double residual_scale = 1;       // Granite: of what attention and the MLP add
  double logit_scale = 1;          // Cohere, Granite
  double embedding_scale = 1;      // Gemma: sqrt(hidden_size)
  double attention_scale = 0;      // of q.k, YaRN's factor for MLA included
  double attention_logit_cap = 0;  // Gemma 2: 50; 0 = none
  double final_logit_cap = 0;      // Gemma 2: 30; 0 = none
  bool attention_sinks = false;    // gpt-oss
  bool sinks_in_windows = false;   // MiMo V2: of layers with a window alone
  double value_scale = 1;          // MiMo V2: of values, once projected
  bool qk_l2_norm = false;         // Llama 4: queries and keys are normed, without weights, once rotated
  TemperatureTuning temperature_tuning;
  TensorNames names;
  bool attn_output_gate = false;  // Qwen3-Next: q_proj makes a gate for the output of each head, too
  Activation activation = Activation::kSilu;
  bool limits_gates = false;  // DeepSeek V4: LayerConfig's limits hold before SiLU
  std::vector<std::uint32_t> eos_token_ids;

  bool is_mla() const { return mla.kv_lora_rank > 0; }
  // Elements of a head that are rotated, the first ones.
  std::uint32_t rope_dim(const RopeConfig& rope) const {
    if (is_mla()) return mla.qk_rope_head_dim;
    const std::uint32_t dim = rope.head_dim > 0 ? rope.head_dim : head_dim;
    return rope.type == RopeType::kProportional
               ? dim
               : static_cast<std::uint32_t>(dim * rope.partial_rotary_factor);
  }
  // Some layers keep a state and no KV cache.
  bool is_hybrid_linear() const { return linear.num_layers > 0; }
  std::uint32_t num_dense_layers() const { return num_layers - moe.num_layers - num_bare_layers; }
  bool is_compressed() const { return compressed.q_lora_rank > 0; }
  // DeepSeek V3.2's: an indexer chooses single tokens.
  bool is_sparse() const { return indexer.num_heads > 0 && !is_compressed() && !is_block_sparse(); }
  // MiniMax M3's: plain heads, and an indexer that chooses blocks of tokens.
  bool is_block_sparse() const { return indexer.block > 0; }
  // Those of the layers of `kind`.
  AttentionHeads heads_of(const AttentionKind& kind) const {
    if (kind.heads.num_heads > 0) return kind.heads;
    return {.num_heads = num_attention_heads, .num_kv_heads = num_key_value_heads, .head_dim = head_dim};
  }
  AttentionHeads heads_of(const LayerConfig& layer) const { return heads_of(attention[layer.attention]); }
  // Whether some layers have not the model's heads.
  bool has_kinds_of_heads() const {
    return std::any_of(attention.begin(), attention.end(),
                       [](const AttentionKind& kind) { return kind.heads.num_heads > 0; });
  }
};

// `model_path`: a folder with a config.json, or such a file, or a catalogue name or its Hugging Face id (in
// any case). What exists as a path is read as one. Throws UserError naming --model-path, or the file and key.
ModelConfig load_model_config(const std::string& model_path);
// Parses the text of a config.json. `where` names it in errors.
ModelConfig parse_model_config(const std::string& json, const std::string& where);
std::vector<std::string> model_catalogue();

}  // namespace tpsim::rank
