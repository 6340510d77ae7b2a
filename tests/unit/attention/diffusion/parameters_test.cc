// --attention-backend-config: every parameter good and bad, the three forms, and STA's file.
#include "attention/diffusion/parameters.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "attention/diffusion/mask_strategy.h"
#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention::diffusion_parameters_test {
namespace {

const DiffusionBackend& backend(const std::string& name) {
  return find_diffusion_backend("--attention-backend", name);
}

// What is said; empty: nothing is wrong.
std::string refusal(const std::string& name, const std::string& text) {
  try {
    read_diffusion_parameters(backend(name), text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string written(const std::string& name, const std::string& text) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tpsim-" + std::to_string(getpid()) + "-" + name);
  std::ofstream(path) << text;
  return path.string();
}

constexpr const char* kMoba =
    R"("temporal_chunk_size": 2, "temporal_topk": 3, "spatial_chunk_size": [3, 4], "spatial_topk": 20,
       "st_chunk_size": [4, 6, 4], "st_topk": 15)";

// A value that a parameter takes, and ones that it does not.
std::string good_value(const DiffusionParameter& parameter) {
  switch (parameter.type) {
    case ParameterType::kSizes:
      return parameter.sizes == 2 ? "[3, 4]" : "[4, 6, 4]";
    case ParameterType::kFlag:
      return "true";
    case ParameterType::kInteger:
      return "7";
    case ParameterType::kReal:
      return "0.5";
    case ParameterType::kText:
      break;
  }
  return "\"" + std::string(parameter.choices.empty() ? "windows.json" : parameter.choices.front()) + "\"";
}

std::vector<std::string> bad_values(const DiffusionParameter& parameter) {
  std::vector<std::string> bad = {"null", "{\"a\": 1}", "[[1]]"};
  if (parameter.type != ParameterType::kSizes) bad.emplace_back("[1, 2]");
  switch (parameter.type) {
    case ParameterType::kSizes:
      bad.insert(bad.end(), {"[3]", "[0, 0, 0]", "[0, 1]", "[-1, 2]", "\"x\"", "3"});
      break;
    case ParameterType::kFlag:
      bad.insert(bad.end(), {"1", "\"yes\""});
      break;
    case ParameterType::kInteger:
      bad.insert(bad.end(), {"-1", "1.5", "\"many\"", "true"});
      break;
    case ParameterType::kReal:
      bad.insert(bad.end(), {"-0.1", "\"half\"", "true"});
      break;
    case ParameterType::kText:
      bad.emplace_back("\"\"");
  }
  if (parameter.type == ParameterType::kReal && parameter.max == 1) bad.emplace_back("1.01");
  if (!parameter.choices.empty()) bad.emplace_back("\"nonsense\"");
  return bad;
}

TEST(DiffusionParameters, EveryOneGoodAndBad) {
  int parameters = 0;
  for (const DiffusionBackend* const row : diffusion_backends()) {
    for (const DiffusionParameter& tested : row->parameters) {
      // The others that are required, with the tested one last.
      std::string others;
      for (const DiffusionParameter& other : row->parameters) {
        if (other.required && other.name != tested.name)
          others += "\"" + std::string(other.name) + "\": " + good_value(other) + ", ";
      }
      const auto with = [&](const std::string& value) {
        return "{" + others + "\"" + std::string(tested.name) + "\": " + value + "}";
      };
      const std::string name(row->name);
      EXPECT_EQ(refusal(name, with(good_value(tested))), "") << tested.name;
      for (const std::string& value : bad_values(tested)) {
        const std::string sentence = refusal(name, with(value));
        EXPECT_NE(sentence.find("--attention-backend-config"), std::string::npos)
            << tested.name << " " << value;
        EXPECT_NE(sentence.find(tested.name), std::string::npos) << sentence;
      }
      if (!others.empty()) others.resize(others.size() - 2);
      const std::string without = refusal(name, "{" + others + "}");
      EXPECT_EQ(without.empty(), !tested.required) << tested.name << ": " << without;
      EXPECT_NE(tested.meaning, "");
      ++parameters;
    }
    const std::string unknown = refusal(std::string(row->name), "sparsitty=0.5");
    EXPECT_NE(unknown.find("sparsitty"), std::string::npos) << row->name << unknown;
  }
  EXPECT_EQ(parameters, 3 + 1 + 14 + 9 + 1 + 1 + 1);
}

TEST(DiffusionParameters, DefaultsAreTheDocumentations) {
  const auto vsa = read_diffusion_parameters(backend("video_sparse_attn"), "");
  EXPECT_EQ(vsa.at("sparsity"), "0");
  const auto moba = read_diffusion_parameters(backend("vmoba_attn"), std::string("{") + kMoba + "}");
  EXPECT_EQ(moba.at("moba_select_mode"), "threshold");
  EXPECT_EQ(moba.at("moba_threshold"), "0.25");
  EXPECT_EQ(moba.at("moba_threshold_type"), "query_head");
  EXPECT_EQ(moba.at("first_full_step"), "12");
  EXPECT_EQ(moba.at("first_full_layer"), "0");
  EXPECT_EQ(moba.at("spatial_chunk_size"), "3,4");
  EXPECT_EQ(moba.at("st_layer"), "1");
  const auto sta =
      read_diffusion_parameters(backend("sliding_tile_attn"), "mask_strategy_file_path=/a/b.json");
  EXPECT_EQ(sta.at("skip_time_steps"), "15");
  EXPECT_EQ(sta.at("sta_mode"), "STA_inference");
}

TEST(DiffusionParameters, ThreeForms) {
  const DiffusionBackend& vsa = backend("video_sparse_attn");
  EXPECT_EQ(read_diffusion_parameters(vsa, "sparsity=0.5").at("sparsity"), "0.5");
  EXPECT_EQ(read_diffusion_parameters(vsa, " VSA_sparsity = 0.5 ").at("sparsity"), "0.5");
  EXPECT_EQ(read_diffusion_parameters(vsa, R"({"sparsity": 0.5})").at("sparsity"), "0.5");
  EXPECT_EQ(read_diffusion_parameters(vsa, written("a.json", R"({"sparsity": 0.5})")).at("sparsity"), "0.5");
  EXPECT_EQ(read_diffusion_parameters(vsa, written("a.yaml", "sparsity: 0.5\n")).at("sparsity"), "0.5");
  // vmoba_attn's keys may stand in an object of their own, as its source reads them.
  const std::string moba = std::string("{\"moba_config\": {") + kMoba + "}}";
  EXPECT_EQ(refusal("vmoba_attn", moba), "");
  EXPECT_EQ(refusal("vmoba_attn", written("m.yml",
                                          "moba_config:\n  temporal_chunk_size: 2\n  temporal_topk: 3\n"
                                          "  spatial_chunk_size: [3, 4]\n  spatial_topk: 20\n"
                                          "  st_chunk_size: [4, 6, 4]\n  st_topk: 15\n")),
            "");
  for (const std::string& bad :
       {std::string("sparsity"), std::string("[1]"), std::string("/no/such/file.json"),
        written("b.json", "{"), written("b.yaml", "a: [1"), written("c.yaml", "- 1"),
        std::string("sparsity=0.5,"), written("d.json", "[]")})
    EXPECT_NE(refusal("video_sparse_attn", bad).find("--attention-backend-config"), std::string::npos) << bad;
}

// Every window 3 x 3 x 3 of 5 x 6 x 10 tiles.
std::string strategy(std::uint32_t steps, std::uint32_t layers, std::uint32_t heads) {
  std::string text = "{";
  for (std::uint32_t step = 0; step < steps; ++step)
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      for (std::uint32_t head = 0; head < heads; ++head)
        text += (text.size() > 1 ? ", \"" : "\"") + std::to_string(step) + "_" + std::to_string(layer) + "_" +
                std::to_string(head) + "\": [3, 3, 3]";
  return text + "}";
}

TEST(DiffusionMaskStrategy, IsReadAndChecked) {
  const MaskStrategy good = read_mask_strategy(written("s.json", strategy(2, 3, 4)));
  EXPECT_EQ(good.steps, 2U);
  EXPECT_EQ(good.layers, 3U);
  EXPECT_EQ(good.heads, 4U);
  EXPECT_DOUBLE_EQ(good.share(1, 2, {5, 6, 10}), 27.0 / 300);
  EXPECT_THROW(good.share(2, 0, {5, 6, 10}), UserError);
  for (const char* bad :
       {"", "[]", "{}", R"({"0_0": [1, 1, 1]})", R"({"a_0_0": [1, 1, 1]})", R"({"0_0_0": [1, 1]})",
        R"({"0_0_0": [1, 1, 0]})", R"({"0_0_0": [1, 1, -1]})", R"({"0_0_0": "1,1,1"})",
        R"({"0_0_0": [1, 1, 1], "1_1_1": [1, 1, 1]})", R"({"9999999_0_0": [1, 1, 1]})",
        R"({"-1_0_0": [1, 1, 1]})", R"({"0_0_0": [1.5, 1, 1]})"})
    EXPECT_THROW(read_mask_strategy(written("bad.json", bad)), UserError) << bad;
  EXPECT_THROW(read_mask_strategy("/no/such/file.json"), UserError);
  EXPECT_THROW(read_mask_strategy("/tmp"), UserError);
}

// arXiv 2502.04507: windows of 3 x 3 x 3 leave 91 % out, and the kernel is 10.45 times as fast as
// FlashAttention 3.
TEST(DiffusionMaskStrategy, WindowsOfThreeTilesAreTenTimesAsFast) {
  const proto::HardwareProfile gpu = rank::load_hardware("h100-sxm");
  const std::string path = written("sta.json", strategy(20, 2, 24));
  const DiffusionAttention sta(
      gpu, backend("sliding_tile_attn"),
      read_diffusion_parameters(backend("sliding_tile_attn"), "mask_strategy_file_path=" + path));
  const DiffusionAttention fa(gpu, backend("fa"), {});
  DiffusionCall call;
  call.heads = 24;
  call.head_dim = 128;
  call.queries = call.keys = 115200;
  call.grid = {30, 48, 80};
  call.step = 14;
  EXPECT_EQ(sta.share(call), 1);
  call.step = 15;
  EXPECT_NEAR(sta.share(call), 0.09, 1e-9);
  const double speedup = fa.layer(call).seconds / sta.layer(call).seconds;
  EXPECT_NEAR(speedup, 10.45, 1.5);
  call.step = 20;
  EXPECT_THROW(sta.layer(call), UserError);
  call.queries = call.keys = 32760;
  call.step = 0;
  EXPECT_THROW(sta.layer(call), UserError);
}

}  // namespace
}  // namespace tpsim::attention::diffusion_parameters_test
