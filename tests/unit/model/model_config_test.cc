#include "rank/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/model/errors.h"

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
  const std::vector<std::string> names = model_catalogue();
  EXPECT_EQ(names, (std::vector<std::string>{"llama-3.1-70b", "llama-3.1-8b", "mistral-7b", "qwen3-30b-a3b",
                                             "qwen3-32b", "qwen3-8b", "tinyllama-1.1b"}));
  for (const std::string& name : names) EXPECT_EQ(load_model_config(name).name, name);
}

TEST(ModelCatalogue, PublishersNamesInAnyCase) {
  for (const char* name : {"meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B",
                           "META-LLAMA/LLAMA-3.1-70B", "Llama-3.1-70B"}) {
    EXPECT_EQ(load_model_config(name).name, "llama-3.1-70b") << name;
  }
  EXPECT_EQ(load_model_config("Qwen/Qwen3-30B-A3B").name, "qwen3-30b-a3b");
  EXPECT_EQ(load_model_config("mistralai/Mistral-7B-Instruct-v0.3").name, "mistral-7b");
  // Another window and vocabulary.
  EXPECT_THAT(refusal([] { load_model_config("mistralai/Mistral-7B-v0.1"); }), HasSubstr("mistral-7b?"));
}

TEST(ModelCatalogue, UnknownNamesGetTheNearest) {
  EXPECT_THAT(refusal([] { load_model_config("lama-3.1-70b"); }),
              AllOf(HasSubstr("--model-path lama-3.1-70b"), HasSubstr("did you mean llama-3.1-70b?")));
  EXPECT_THAT(refusal([] { load_model_config("qwen3-9b"); }), HasSubstr("did you mean qwen3-8b?"));
  // A path that does not exist is not taken for the model whose name it ends with.
  EXPECT_THAT(refusal([] { load_model_config("/nowhere/qwen3-8b"); }), HasSubstr("did you mean qwen3-8b?"));
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

}  // namespace
}  // namespace tpsim::rank
