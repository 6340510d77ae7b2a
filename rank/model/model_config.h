// The architecture of a model: the numbers of its config.json that decide shapes, and the linear layers that
// follow from them. One description serves pricing (their cost), memory (their bytes) and execution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::rank {

struct MoeConfig {
  std::uint32_t num_experts = 0;  // 0: dense MLP in every layer
  std::uint32_t top_k = 0;
  std::uint32_t intermediate_size = 0;  // of one expert
  std::uint32_t num_layers = 0;         // layers with experts; the others have a dense MLP
};

// Layers that attend in the same way.
struct AttentionKind {
  std::uint32_t num_layers = 0;
  std::uint32_t sliding_window = 0;  // tokens; 0 = full attention
};

struct ModelConfig {
  std::string name;
  std::string architecture;  // "LlamaForCausalLM" …
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t num_attention_heads = 0;
  std::uint32_t num_key_value_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;  // tokens; rope scaling included, as SGLang derives it
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  std::uint32_t weight_bytes = 2;  // per parameter; float32 checkpoints are served in 16 bit, as by SGLang
  std::vector<AttentionKind> attention;
  MoeConfig moe;
};

// How a linear layer's weight is cut over the ranks.
enum class Sharding : std::uint8_t { kColumn, kRow, kVocabulary, kReplicated };

// One kind of linear layer y[m, n] = x[m, k] W. Sizes of the whole layer, before sharding.
struct LinearLayer {
  std::string name;
  std::uint64_t k = 0;
  std::uint64_t n = 0;
  Sharding sharding = Sharding::kReplicated;
  std::uint32_t count = 1;  // layers of this kind
};

// `model_path`: a folder with a config.json, or such a file, or a catalogue name or its Hugging Face id (in
// any case). What exists as a path is read as one. Throws UserError naming --model-path, or the file and key.
ModelConfig load_model_config(const std::string& model_path);
// Parses the text of a config.json. `where` names it in errors.
ModelConfig parse_model_config(const std::string& json, const std::string& where);
std::vector<std::string> model_catalogue();

}  // namespace tpsim::rank
