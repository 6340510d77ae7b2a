// Bytes of quantised models against published checkpoints and a real server.
#include <gtest/gtest.h>

#include <string>

#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/cost/hardware.h"
#include "rank/llm/layers.h"
#include "rank/llm/memory.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

double bytes_of(const std::string& config, std::uint32_t tp = 1) {
  const ModelConfig model = parse_model_config(config, "config.json");
  return static_cast<double>(weight_bytes(model, make_shard(model, tp, 0)));
}

constexpr const char* kLlama70b =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072)";
constexpr const char* kDeepSeekV3 =
    R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432,
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280,
        "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1,
        "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": true,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128)";

TEST(QuantisedMemory, PublishedCheckpoints) {
  // hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4: 39.77 GB.
  EXPECT_NEAR(bytes_of(std::string(kLlama70b) +
                       R"(, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128,
                            "zero_point": true, "version": "gemm"}})"),
              39.77e9, 0.01 * 39.77e9);
  // openai/gpt-oss-120b: total_size 65,248,815,744.
  EXPECT_NEAR(
      bytes_of(R"({"architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
                           "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
                           "head_dim": 64, "vocab_size": 201088, "max_position_embeddings": 131072,
                           "num_local_experts": 128, "num_experts_per_tok": 4, "attention_bias": true,
                           "sliding_window": 128,
                           "quantization_config": {"quant_method": "mxfp4"}})"),
      65248815744.0, 0.01 * 65248815744.0);
  // deepseek-ai/DeepSeek-V3: total_size 688,586,727,753, of which the layer that predicts a second token
  // (experts, attention, its own embedding and head) takes 15.4e9 and is not loaded.
  const double v3 =
      bytes_of(std::string(kDeepSeekV3) +
               R"(, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
                                  "weight_block_size": [128, 128]}})");
  EXPECT_NEAR(v3, 688586727753.0 - 15.4e9, 0.01 * 673e9);
}

TEST(QuantisedMemory, ALlamaQuantisedWhileLoadingIsTheRealServers) {
  // servers.jsonl of shared/data/serving, SGLang 0.5.12 on an H200: 15.02 GB of weights in 16 bit and 906,051
  // tokens, 8.78 GB and 957,155 tokens with --quantization fp8, --mem-fraction-static 0.903.
  ModelConfig model = load_model_config("llama-3.1-8b");
  const Shard shard = make_shard(model, 1, 0);
  const double wide = static_cast<double>(weight_bytes(model, shard));
  model.quantization = resolve_quantization(model.quantization, "fp8");
  const double narrow = static_cast<double>(weight_bytes(model, shard));
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  EXPECT_NEAR(wide / kGiB, 15.02, 0.01 * 15.02);
  EXPECT_NEAR(narrow / kGiB, 8.78, 0.01 * 8.78);
  const double tokens =
      (wide - narrow) / static_cast<double>(kv_bytes_per_token(model, shard, NumberFormat::kBf16));
  EXPECT_NEAR(tokens, 957155 - 906051, 500);
}

TEST(QuantisedMemory, PartsOfBlocksAreRefused) {
  const std::string config =
      std::string(kDeepSeekV3) +
      R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";
  const ModelConfig model = parse_model_config(config, "config.json");
  EXPECT_EQ(refusal([&] { check_blocks(weight_list(model, make_shard(model, 8, 0)), model.name); }), "");
  EXPECT_NE(refusal([&] {
              check_blocks(weight_list(model, make_shard(model, 32, 0)), model.name);
            }).find("blocks of 128"),
            std::string::npos);
}

TEST(QuantisedMemory, SomeLayersMayStay16Bit) {
  const std::string all = std::string(kLlama70b) + R"(, "quantization_config": {"quant_method": "fp8"}})";
  const std::string some =
      std::string(kLlama70b) +
      R"(, "quantization_config": {"quant_method": "fp8", "ignored_layers": ["model.layers.0.mlp"]}})";
  const double mlp = 3.0 * 8192 * 28672;
  EXPECT_NEAR(bytes_of(some) - bytes_of(all), mlp, 1000);
}

}  // namespace
}  // namespace tpsim::rank
