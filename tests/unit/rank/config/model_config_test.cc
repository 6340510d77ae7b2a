#include "rank/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rank/catalogue/catalogue.h"
#include "rank/config/shard.h"
#include "rank/llm/layers.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"vocab_size", 128256},
          {"max_position_embeddings", 8192},
          {"torch_dtype", "bfloat16"}};
}
ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), "config.json"); }
std::string refused(const Json& json) {
  return refusal([&] { parse(json); });
}

TEST(ModelCatalogue, EveryEntryLoads) {
  std::vector<std::string> names = model_catalogue();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"c4ai-command-r-v01",
                                             "c4ai-command-r7b-12-2024",
                                             "deepseek-moe-16b",
                                             "deepseek-ocr-2",
                                             "deepseek-r1",
                                             "deepseek-v2-lite",
                                             "deepseek-v3",
                                             "deepseek-v3.2",
                                             "deepseek-v4-flash",
                                             "deepseek-v4-pro",
                                             "ernie-4.5-0.3b",
                                             "ernie-4.5-21b-a3b",
                                             "exaone-3.5-7.8b",
                                             "exaone-4.0-32b",
                                             "gemma-2-9b",
                                             "gemma-3-27b",
                                             "gemma-4-31b",
                                             "gemma-7b",
                                             "glm-4-9b",
                                             "glm-4-9b-0414",
                                             "glm-4.5",
                                             "glm-4.5-air",
                                             "glm-4.7-flash",
                                             "glm-5",
                                             "gpt-oss-120b",
                                             "gpt-oss-20b",
                                             "granite-3.1-3b-a800m",
                                             "granite-3.3-8b",
                                             "granite-4.0-h-small",
                                             "hunyuan-7b",
                                             "hunyuan-a13b",
                                             "hy3-preview",
                                             "internlm2_5-7b",
                                             "internlm3-8b",
                                             "internvl3.5-8b",
                                             "k-exaone-236b-a23b",
                                             "kimi-k2",
                                             "kimi-k3",
                                             "kimi-linear-48b-a3b",
                                             "laguna-m.1",
                                             "laguna-xs.2",
                                             "lfm2.5-1.2b",
                                             "lfm2.5-8b-a1b",
                                             "ling-2.5-1t",
                                             "ling-mini-2.0",
                                             "llama-3.1-405b",
                                             "llama-3.1-70b",
                                             "llama-3.1-8b",
                                             "llama-3.2-3b",
                                             "llama-3.3-70b",
                                             "llama-4-scout",
                                             "mimo-7b-rl",
                                             "mimo-v2-flash",
                                             "mimo-v2.5-pro",
                                             "minicpm-2b-sft-bf16",
                                             "minimax-m2",
                                             "minimax-m3",
                                             "mistral-7b",
                                             "mistral-small",
                                             "mistral-small-4-bf16",
                                             "mixtral-8x7b",
                                             "nemotron-3-nano-30b-a3b",
                                             "nemotron-3-super-120b-a12b",
                                             "olmo-2-1124-7b",
                                             "olmo-3-7b",
                                             "olmoe-1b-7b-0125",
                                             "phi-3.5-moe",
                                             "phi-4",
                                             "qwen1.5-moe-a2.7b",
                                             "qwen2.5-14b-1m",
                                             "qwen2.5-32b",
                                             "qwen2.5-72b",
                                             "qwen2.5-7b",
                                             "qwen2.5-vl-7b",
                                             "qwen3-235b-a22b",
                                             "qwen3-30b-a3b",
                                             "qwen3-32b",
                                             "qwen3-8b",
                                             "qwen3-coder-480b-a35b",
                                             "qwen3-next-80b-a3b",
                                             "qwen3-vl-30b-a3b",
                                             "qwen3-vl-8b",
                                             "qwen3.5-27b",
                                             "qwen3.5-397b-a17b",
                                             "stablelm-2-1_6b",
                                             "starcoder2-15b",
                                             "step-3.5-flash",
                                             "tinyllama-1.1b",
                                             "trinity-mini"}));
  for (const std::string& name : names) EXPECT_EQ(load_model_config(name).name, name);
}

TEST(ModelCatalogue, PublishersNamesInAnyCase) {
  for (const char* name : {"meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B",
                           "META-LLAMA/LLAMA-3.1-70B", "Llama-3.1-70B"}) {
    EXPECT_EQ(load_model_config(name).name, "llama-3.1-70b") << name;
  }
  EXPECT_EQ(load_model_config("Qwen/Qwen3-30B-A3B").name, "qwen3-30b-a3b");
  EXPECT_EQ(load_model_config("mistralai/Mistral-7B-Instruct-v0.3").name, "mistral-7b");
  for (const auto& [published, name] :
       {std::pair("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        {"meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"},
        {"meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"},
        {"deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-v2-lite"},
        {"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"},
        {"deepseek-ai/DeepSeek-R1", "deepseek-r1"},
        {"deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"},
        {"openai/gpt-oss-20b", "gpt-oss-20b"},
        {"openai/gpt-oss-120b", "gpt-oss-120b"},
        {"Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"},
        {"Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b-fp8"},
        {"Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"},
        {"zai-org/GLM-4.5-Air", "glm-4.5-air"},
        {"zai-org/GLM-5", "glm-5"},
        {"zai-org/GLM-5-FP8", "glm-5-fp8"},
        {"moonshotai/Kimi-K2-Instruct-0905", "kimi-k2-0905"},
        {"nvidia/DeepSeek-R1-0528-FP4", "deepseek-r1-0528-fp4"},
        {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
        {"mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b-2501"},
        {"Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b-2507-fp8"},
        {"moonshotai/Kimi-K2-Instruct", "kimi-k2"},
        {"google/gemma-3-27b-it", "gemma-3-27b"},
        {"Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"},
        {"OpenGVLab/InternVL3_5-8B", "internvl3.5-8b"},
        {"microsoft/phi-4", "phi-4"},
        {"Qwen/Qwen2.5-14B-Instruct-1M", "qwen2.5-14b-1m"},
        {"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small"}}) {
    EXPECT_EQ(load_model_config(published).name, name);
  }
  // Another window and vocabulary.
  EXPECT_THAT(refusal([] { load_model_config("mistralai/Mistral-7B-v0.1"); }), HasSubstr("mistral-7b?"));
}

// Releases of a model differ from it where their config.json does.
TEST(ModelCatalogue, ReleasesAreTheModelWithAFewKeysChanged) {
  EXPECT_EQ(load_model_config("moonshotai/Kimi-K2-Instruct-0905").context_length, 262144U);
  EXPECT_EQ(load_model_config("moonshotai/Kimi-K2-Instruct").context_length, 131072U);
  EXPECT_EQ(load_model_config("mistralai/Mistral-Small-24B-Instruct-2501").context_length, 32768U);
  EXPECT_EQ(load_model_config("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8").context_length, 262144U);
  EXPECT_EQ(load_model_config("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8").quantization.method, "fp8");
  EXPECT_EQ(load_model_config("zai-org/GLM-5-FP8").quantization.method, "fp8");
  EXPECT_EQ(load_model_config("nvidia/DeepSeek-R1-FP4").quantization.method, "modelopt_fp4");
  // Others publish a model again as it is, or quantised in their own way.
  EXPECT_EQ(load_model_config("unsloth/Llama-3.1-8B-Instruct").name, "llama-3.1-8b");
  EXPECT_EQ(load_model_config("NousResearch/Meta-Llama-3-8B-Instruct").name, "llama-3-8b");
  EXPECT_EQ(load_model_config("nvidia/DeepSeek-R1-0528-FP4-v2").quantization.method, "modelopt_fp4");
  EXPECT_EQ(load_model_config("nvidia/Llama-3.1-405B-Instruct-FP4").quantization.method, "modelopt_fp4");
  EXPECT_EQ(load_model_config("lmsys/gpt-oss-20b-bf16").quantization.method, "");
  for (const auto& [id, method] : {std::pair("nvidia/Llama-3.3-70B-Instruct-FP8", "modelopt"),
                                   {"RedHatAI/Llama-3.3-70B-Instruct-FP8", "fp8"},
                                   {"neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8", "fp8"},
                                   {"RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "compressed-tensors"},
                                   {"RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "gptq"},
                                   {"hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "awq"}}) {
    EXPECT_EQ(load_model_config(id).quantization.method.substr(0, std::string_view(method).size()), method)
        << id;
  }
}

// Sizes of the checkpoints on Hugging Face (total_size of their index files), in 10^9 bytes.
TEST(ModelCatalogue, WeighsWhatTheCheckpointsWeigh) {
  const std::pair<const char*, double> kSizes[] = {
      {"qwen2.5-7b", 15.23},         {"qwen2.5-32b", 65.53},
      {"qwen2.5-72b", 145.41},       {"llama-3.2-3b", 6.43},
      {"llama-3.1-405b", 811.7},     {"mixtral-8x7b", 93.41},
      {"llama-3.1-8b", 16.06},       {"qwen3-coder-480b-a35b", 960.3},
      {"qwen3-next-80b-a3b", 159.3}, {"mistral-small-24b-2501", 47.14}};
  for (const auto& [name, size] : kSizes) {
    const ModelConfig model = load_model_config(name);
    EXPECT_NEAR(static_cast<double>(weight_bytes(model, make_shard(model, 1, 0))) / 1e9 / size, 1, 0.01)
        << name;
  }
}

TEST(ModelCatalogue, UnknownNamesGetTheNearest) {
  EXPECT_THAT(refusal([] { load_model_config("lama-3.1-70b"); }),
              AllOf(HasSubstr("--model-path lama-3.1-70b"), HasSubstr("did you mean llama-3.1-70b")));
  EXPECT_THAT(refusal([] { load_model_config("qwen3-9b"); }), HasSubstr("did you mean qwen3-8b"));
  // A path that does not exist is not taken for the model whose name it ends with.
  EXPECT_THAT(refusal([] { load_model_config("/nowhere/qwen3-8b"); }), HasSubstr("did you mean qwen3-8b"));
  EXPECT_NE(refusal([] { load_model_config(""); }), "");
}

TEST(ModelConfig, FolderFileAndErrorsOfThem) {
  const TemporaryFolder folder("config");
  EXPECT_THAT(refusal([&] { load_model_config(folder.path()); }), HasSubstr("has no config.json"));
  const std::string file = folder.write("config.json", llama().dump());
  EXPECT_EQ(load_model_config(folder.path()).hidden_size, 4096U);
  EXPECT_EQ(load_model_config(file).num_layers, 32U);
  folder.write("config.json", llama().dump().substr(0, 50));
  EXPECT_THAT(refusal([&] { load_model_config(folder.path()); }),
              AllOf(HasSubstr("config.json"), HasSubstr("not a JSON object")));
}

TEST(ModelConfig, EveryNumberIsChecked) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "vocab_size", "max_position_embeddings"}) {
    Json json = llama();
    json.erase(key);
    EXPECT_THAT(refused(json), AllOf(HasSubstr("config.json"), HasSubstr(key), HasSubstr("missing"))) << key;
    for (const Json& value : {Json(-1), Json(0), Json("many"), Json(1.5), Json(1e300), Json(~0ULL),
                              Json::array({1}), Json(true)}) {
      json[key] = value;
      EXPECT_THAT(refused(json), AllOf(HasSubstr(key), HasSubstr("whole number"))) << key << value;
    }
  }
  for (const char* key : {"num_key_value_heads", "head_dim"}) {
    Json json = llama();
    for (const Json& value : {Json(-1), Json(0), Json("many"), Json(1e300)}) {
      json[key] = value;
      EXPECT_THAT(refused(json), HasSubstr(key)) << key << value;
    }
  }
}

TEST(ModelConfig, ArchitecturesMustMatchWhole) {
  for (const char* name : {"PhiForCausalLM", "ForCausalLM", "", ", ", "llamaforcausallm"}) {
    Json json = llama();
    json["architectures"] = {name};
    EXPECT_THAT(refused(json), AllOf(HasSubstr("not supported"), HasSubstr("Qwen3MoeForCausalLM"))) << name;
  }
  for (const Json& value : {Json(), Json::array(), Json(3), Json::array({3})}) {
    Json json = llama();
    json["architectures"] = value;
    EXPECT_THAT(refused(json), HasSubstr("architectures"));
  }
}

TEST(ModelConfig, HeadsMustFit) {
  Json json = llama();
  json["num_key_value_heads"] = 5;
  EXPECT_THAT(refused(json), HasSubstr("not a multiple of num_key_value_heads 5"));
  json = llama();
  json["num_attention_heads"] = 24;
  EXPECT_THAT(refused(json), HasSubstr("does not divide hidden_size"));
  json["head_dim"] = 128;
  EXPECT_EQ(parse(json).head_dim, 128U);
}

TEST(ModelConfig, BothSpellingsOfTransformers) {
  Json json = llama();
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(parse(json).context_length, 32768U);
  json["rope_scaling"]["original_max_position_embeddings"] = 2048;
  EXPECT_EQ(parse(json).context_length, 8192U);
  json["rope_scaling"] = {
      {"rope_type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 2048}};
  EXPECT_EQ(parse(json).context_length, 8192U);
  for (const Json& factor : {Json(-1), Json("x"), Json(0), Json(1e99)}) {
    json["rope_scaling"] = {{"type", "linear"}, {"factor", factor}};
    EXPECT_THAT(refused(json), HasSubstr("rope_scaling.factor"));
  }
  json.erase("rope_scaling");
  json.erase("torch_dtype");
  json["dtype"] = "float16";
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 2.0}, {"rope_theta", 1e4}};
  EXPECT_EQ(parse(json).context_length, 16384U);
  EXPECT_EQ(parse(json).weight_bytes, 2U);
  json["dtype"] = "int3";
  EXPECT_THAT(refused(json), HasSubstr("int3"));
}

TEST(ModelConfig, SlidingWindows) {
  Json json = llama();
  json["architectures"] = {"MistralForCausalLM"};
  json["sliding_window"] = 4096;
  ASSERT_EQ(parse(json).attention.size(), 1U);
  EXPECT_EQ(parse(json).attention[0].sliding_window, 4096U);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(parse(json).attention[0].sliding_window, 0U);

  json["architectures"] = {"Qwen2ForCausalLM"};
  json["sliding_window"] = 4096;
  EXPECT_EQ(parse(json).attention[0].sliding_window, 0U);  // use_sliding_window is false by default
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 28;
  ASSERT_EQ(parse(json).attention.size(), 2U);
  EXPECT_EQ(parse(json).attention[0].num_layers, 28U);
  EXPECT_EQ(parse(json).attention[1].num_layers, 4U);
  EXPECT_TRUE(parse(json).qkv_bias);

  json["layer_types"] = std::vector<std::string>(31, "full_attention");
  EXPECT_THAT(refused(json), AllOf(HasSubstr("layer_types"), HasSubstr("31")));
  json["layer_types"].push_back("sliding_attention");
  EXPECT_EQ(parse(json).attention[1].num_layers, 1U);
  json.erase("sliding_window");
  EXPECT_THAT(refused(json), HasSubstr("sliding_window"));
}

// Mistral Small 4 keeps the name of a dense model, and has latents and experts.
TEST(ModelConfig, WhatNoReaderOfTheFamilyAsksForIsRefused) {
  for (const char* key : {"kv_lora_rank", "n_routed_experts", "hc_mult", "index_topk"}) {
    Json json = llama();
    json[key] = 128;
    EXPECT_THAT(refused(json), AllOf(HasSubstr(key), HasSubstr("128"), HasSubstr("LlamaForCausalLM"))) << key;
    for (const Json& nothing : {Json(), Json(0), Json(false), Json::array()}) {
      json[key] = nothing;
      EXPECT_NO_THROW(parse(json)) << key << nothing;
    }
  }
}

TEST(ModelConfig, Experts) {
  Json json = llama();
  json["architectures"] = {"MixtralForCausalLM"};
  EXPECT_THAT(refused(json), HasSubstr("num_local_experts"));
  json["num_local_experts"] = 8;
  json["num_experts_per_tok"] = 9;
  EXPECT_THAT(refused(json), HasSubstr("9 is more than the 8 experts"));
  json["num_experts_per_tok"] = 2;
  EXPECT_EQ(parse(json).moe.num_layers, 32U);
  EXPECT_EQ(parse(json).moe.intermediate_size, 14336U);

  json["architectures"] = {"Qwen3MoeForCausalLM"};
  json["num_experts"] = 64;
  json["moe_intermediate_size"] = 768;
  json["decoder_sparse_step"] = 2;
  EXPECT_EQ(parse(json).moe.num_layers, 16U);
  json["mlp_only_layers"] = {1, 3, 4};  // 1 and 3 had experts
  EXPECT_EQ(parse(json).moe.num_layers, 14U);
  json["mlp_only_layers"] = {32};
  EXPECT_THAT(refused(json), HasSubstr("mlp_only_layers"));
}

TEST(ModelConfig, Llama4) {
  const ModelConfig model = load_model_config("llama-4-scout");
  ASSERT_EQ(model.attention.size(), 2U);
  EXPECT_EQ(model.attention[0].num_layers, 12U);  // NoPE, everything in view
  EXPECT_EQ(model.attention[0].attention_chunk, 0U);
  EXPECT_EQ(model.attention[1].attention_chunk, 8192U);
  for (std::uint32_t i = 0; i < 48; ++i) {
    EXPECT_EQ(model.layers[i].rope == LayerConfig::kNoRope, i % 4 == 3) << i;
    EXPECT_EQ(model.layers[i].attention, i % 4 == 3 ? 0U : 1U) << i;
  }
  EXPECT_TRUE(model.ropes.front().interleaved);
  EXPECT_EQ(model.moe.num_layers, 48U);
  EXPECT_EQ(model.moe.intermediate_size, 8192U);
  EXPECT_EQ(model.intermediate_size, 16384U);
  EXPECT_EQ(model.context_length, 10485760U);
  EXPECT_EQ(model.eos_token_ids.size(), 3U);

  Json json = llama();
  json["architectures"] = {"Llama4ForCausalLM"};
  json["num_local_experts"] = 16;
  json["num_experts_per_tok"] = 1;
  json["interleave_moe_layer_step"] = 2;
  EXPECT_THAT(refused(json), HasSubstr("intermediate_size_mlp"));
  json["intermediate_size_mlp"] = 16384;
  EXPECT_EQ(parse(json).moe.num_layers, 16U);
  EXPECT_FALSE(parse(json).layers[0].moe);
  json["moe_layers"] = {0, 3};
  EXPECT_TRUE(parse(json).layers[0].moe);
  EXPECT_EQ(parse(json).moe.num_layers, 2U);
  json["no_rope_layers"] = {1, 0};
  EXPECT_THAT(refused(json), AllOf(HasSubstr("no_rope_layers"), HasSubstr("2 entries")));
  json["no_rope_layers"] = 3;
  EXPECT_THAT(refused(json), HasSubstr("must be a list"));
  json["no_rope_layers"] = std::vector<int>(32, 1);
  EXPECT_EQ(parse(json).attention.size(), 1U);
}

TEST(ModelConfig, IndexersOfDeepSeekAndGlm) {
  const ModelConfig deepseek = load_model_config("deepseek-v3.2");
  EXPECT_TRUE(deepseek.is_mla() && deepseek.is_sparse());
  EXPECT_EQ(deepseek.indexer.num_heads, 64U);
  EXPECT_EQ(deepseek.indexer.top_k, 2048U);
  EXPECT_EQ(deepseek.indexer.num_layers, 61U);
  EXPECT_FALSE(deepseek.ropes[deepseek.indexer.rope].interleaved);
  const ModelConfig glm = load_model_config("glm-5");
  EXPECT_EQ(glm.indexer.num_heads, 32U);
  EXPECT_TRUE(glm.ropes[glm.indexer.rope].interleaved);
  EXPECT_EQ(glm.head_dim, 256U);
  EXPECT_FALSE(load_model_config("deepseek-v3").is_sparse());

  Json json = Json::parse(*catalogue::find("models", "glm-5"));
  json["index_topk_freq"] = 4;  // layers 0, 1, 5, 9 …
  EXPECT_EQ(parse(json).indexer.num_layers, 21U);
  EXPECT_EQ(parse(json).attention.size(), 2U);
  json.erase("index_topk_freq");
  json["index_head_dim"] = 32;
  EXPECT_THAT(refused(json), HasSubstr("index_head_dim"));
  json["index_head_dim"] = 128;
  json["mlp_layer_types"] = std::vector<std::string>(78, "sparse");
  EXPECT_EQ(parse(json).moe.num_layers, 78U);
  json["mlp_layer_types"][3] = "odd";
  EXPECT_THAT(refused(json), HasSubstr("mlp_layer_types"));
}

// A published text_config leaves out what its class knows.
TEST(ModelConfig, TextModelsOfMultimodalOnes) {
  const ModelConfig model = parse_model_config(R"({"architectures": ["Gemma3ForConditionalGeneration"],
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
      "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})",
                                               "config.json");
  EXPECT_EQ(model.vocab_size, 262208U);
  EXPECT_EQ(model.num_attention_heads, 8U);
  EXPECT_EQ(model.head_dim, 256U);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_EQ(model.attention.size(), 2U);
  EXPECT_EQ(load_model_config("mistral-small").attention.front().sliding_window, 0U);
}

TEST(ModelConfig, PartsOfHeadsAreRotated) {
  const ModelConfig glm = load_model_config("glm-4.5-air");
  EXPECT_EQ(glm.rope_dim(glm.ropes.front()), 64U);
  EXPECT_TRUE(glm.qkv_bias);
  EXPECT_FALSE(glm.o_bias);
  Json json = llama();
  json["architectures"] = {"Phi3ForCausalLM"};
  json["rope_scaling"] = {{"type", "longrope"}};
  EXPECT_THAT(refused(json), HasSubstr("longrope"));
}

}  // namespace
}  // namespace tpsim::rank
