// The architecture of a model: the numbers of its config.json that decide shapes. What follows from them on a
// rank, its attention layers and its weights, is rank/model/layers.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::rank {

// How experts are chosen for a token.
enum class ExpertScoring : std::uint8_t {
  kSoftmaxThenTopK,  // softmax over all experts, then the top_k of it (Qwen3-MoE, DeepSeek V2)
  kTopKThenSoftmax,  // the top_k logits, softmax over those (Mixtral, gpt-oss)
  kSigmoid,          // sigmoid per expert, chosen with the correction bias, weighted without (DeepSeek V3)
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
  bool router_bias = false;          // gpt-oss: the router has a bias
  bool expert_bias = false;          // gpt-oss: experts' projections have biases
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
// it scores highest.
struct IndexerConfig {
  std::uint32_t num_heads = 0;  // index_n_heads; 0: every token is attended to
  std::uint32_t head_dim = 0;   // index_head_dim, of the one key that all heads share, too
  std::uint32_t top_k = 0;      // index_topk, tokens
};

enum class RopeType : std::uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };

// Rotary position embedding, as rope_scaling (Transformers 4) or rope_parameters (5) say it.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double factor = 1;
  std::uint32_t original_max_position_embeddings = 0;  // tokens; 0: not said
  double low_freq_factor = 1, high_freq_factor = 4;    // llama3
  double beta_fast = 32, beta_slow = 1;                // yarn
  double mscale = 0, mscale_all_dim = 0;               // yarn, DeepSeek; 0: not said
  double attention_factor = 0;                         // yarn; 0: not said
  bool truncate = true;                                // yarn: round the correction range (gpt-oss: no)
  bool interleaved = false;  // pairs of neighbours are rotated (DeepSeek), not halves
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

enum class Activation : std::uint8_t {
  kSilu,
  kGeluTanh,
  kGptOssSwiGlu,  // clamped to +-7, sigmoid(1.702 x), and up + 1
};

// Layers that attend in the same way.
struct AttentionKind {
  std::uint32_t num_layers = 0;
  std::uint32_t sliding_window = 0;  // tokens; 0 = full attention
};

// One layer.
struct LayerConfig {
  std::uint32_t sliding_window = 0;  // tokens, the token itself included; 0 = full attention
  std::uint32_t rope = 0;            // index into ModelConfig::ropes
  std::uint32_t attention = 0;       // index into ModelConfig::attention
  bool moe = false;
};

struct ModelConfig {
  std::string name;
  std::string architecture;        // "LlamaForCausalLM" …
  std::string dtype = "bfloat16";  // of the checkpoint: bfloat16, float16 or float32
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t num_attention_heads = 0;
  std::uint32_t num_key_value_heads = 0;
  std::uint32_t head_dim = 0;  // MLA: qk_nope_head_dim + qk_rope_head_dim
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;           // tokens; rope scaling included, as SGLang derives it
  std::uint32_t max_position_embeddings = 0;  // tokens, as the config says it
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  std::uint32_t weight_bytes = 2;  // per parameter; float32 checkpoints are served in 16 bit, as by SGLang
  std::vector<AttentionKind> attention;  // counted from `layers`; full attention first
  std::vector<LayerConfig> layers;       // num_layers entries
  std::vector<RopeConfig> ropes;         // one, or two where window layers have their own (Gemma 3)
  MoeConfig moe;
  MlaConfig mla;
  IndexerConfig indexer;

  // What numeric execution needs besides shapes.
  double rms_norm_eps = 1e-6;
  bool norm_plus_one = false;      // Gemma: norm weights are stored less 1
  bool post_norms = false;         // Gemma 2, 3: also norms behind attention and MLP
  double embedding_scale = 1;      // Gemma: sqrt(hidden_size)
  double attention_scale = 0;      // of q.k, YaRN's factor for MLA included
  double attention_logit_cap = 0;  // Gemma 2: 50; 0 = none
  double final_logit_cap = 0;      // Gemma 2: 30; 0 = none
  bool attention_sinks = false;    // gpt-oss
  Activation activation = Activation::kSilu;
  std::vector<std::uint32_t> eos_token_ids;

  bool is_mla() const { return mla.kv_lora_rank > 0; }
  bool is_sparse() const { return indexer.num_heads > 0; }
};

// `model_path`: a folder with a config.json, or such a file, or a catalogue name or its Hugging Face id (in
// any case). What exists as a path is read as one. Throws UserError naming --model-path, or the file and key.
ModelConfig load_model_config(const std::string& model_path);
// Parses the text of a config.json. `where` names it in errors.
ModelConfig parse_model_config(const std::string& json, const std::string& where);
std::vector<std::string> model_catalogue();

}  // namespace tpsim::rank
