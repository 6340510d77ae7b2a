#include "rank/cost/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "rank/catalogue/catalogue.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(Hardware, EveryEntryOfTheCatalogueIsWhole) {
  EXPECT_EQ(hardware_catalogue(),
            (std::vector<std::string>{"a10",      "a100-pcie",    "a100-sxm", "ascend-910b", "b200",
                                      "b300",     "gb200",        "gb300",    "gh200",       "h100-pcie",
                                      "h100-sxm", "h20",          "h200-sxm", "l4",          "l40s",
                                      "max-1550", "mi300x",       "mi325x",   "mi350x",      "mi355x",
                                      "rtx-4090", "rtx-pro-6000", "t4",       "xeon-amx"}));
  for (const std::string& name : hardware_catalogue()) {
    const proto::HardwareProfile profile = load_hardware(name);
    EXPECT_EQ(profile.name(), name);
    EXPECT_FALSE(profile.source().empty()) << name;
    for (const char* operator_class : {"gemm", "moe", "all_reduce.custom", "all_reduce.nccl", "all_gather"}) {
      bool found = false;
      for (const auto& entry : profile.efficiencies()) found |= entry.operator_class() == operator_class;
      EXPECT_TRUE(found) << name << " " << operator_class;
    }
    // A fit has an error; what is carried over says from where.
    for (const auto& entry : profile.efficiencies()) {
      EXPECT_TRUE(entry.median_error() > 0 || entry.source().find("carried over") != std::string::npos ||
                  entry.source().find("uncalibrated") != std::string::npos)
          << name << " " << entry.operator_class() << ": " << entry.source();
    }
    // What stands in is there, and for something.
    bool attention = false;
    for (const auto& entry : profile.efficiencies())
      attention |= entry.operator_class().starts_with("attention.");
    EXPECT_TRUE(attention) << name;
    if (!profile.attention_stand_in().empty()) {
      EXPECT_EQ(load_hardware(profile.attention_stand_in()).attention_stand_in(), "") << name;
    }
    // A word would take a piece out of a longer one that comes after it.
    for (int i = 0; i < profile.name_words_size(); ++i) {
      for (int later = i + 1; later < profile.name_words_size(); ++later)
        EXPECT_EQ(profile.name_words(later).find(profile.name_words(i)), std::string::npos)
            << name << ": " << profile.name_words(i) << " before " << profile.name_words(later);
    }
  }
}

TEST(Hardware, UnknownNamesSayWhatIsKnown) {
  EXPECT_THAT(refusal([] { load_hardware("h300"); }),
              AllOf(HasSubstr("--hardware h300"), HasSubstr("h200-sxm")));
  EXPECT_NE(refusal([] { load_hardware(""); }), "");
  EXPECT_NE(refusal([] { load_hardware("/"); }), "");
}

TEST(Hardware, NamesOfVendorsAreUnderstood) {
  const std::pair<const char*, const char*> kNames[] = {
      {"h200", "h200-sxm"},
      {"H200-SXM", "h200-sxm"},
      {"Hopper H200", "h200-sxm"},
      {"NVIDIA H200", "h200-sxm"},
      {"h200_sxm5", "h200-sxm"},
      {"NVIDIA H200 Tensor Core GPU", "h200-sxm"},
      {"h100", "h100-sxm"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"A100-80GB", "a100-sxm"},
      {"NVIDIA A100-SXM4-80GB", "a100-sxm"},
      {"B200", "b200"},
      {"NVIDIA B200", "b200"},
      {"NVIDIA L40S", "l40s"},
      {"l40s", "l40s"},
      {"Tesla T4", "t4"},
      {"NVIDIA A100 80GB PCIe", "a100-pcie"},
      {"NVIDIA A10", "a10"},
      {"NVIDIA L4", "l4"},
      {"NVIDIA H20", "h20"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA GH200 480GB", "gh200"},
      {"NVIDIA GB200", "gb200"},
      {"NVIDIA B300 SXM6 AC", "b300"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"AMD Instinct MI300X", "mi300x"},
      {"AMD Instinct MI325X OAM", "mi325x"},
      {"MI355X", "mi355x"},
      {"GB300", "gb300"},
      {"Ascend910B3", "ascend-910b"},
      {"Intel(R) Data Center GPU Max 1550", "max-1550"},
      {"Intel Xeon 6980P", "xeon-amx"},
  };
  for (const auto& [given, profile] : kNames) EXPECT_EQ(load_hardware(given).name(), profile) << given;
  // Other devices, or none.
  for (const char* name : {"h300", "H100 NVL", "NVIDIA H200 NVL", "A100-SXM4-40GB", "A100-PCIE-40GB",
                           "ampere h200", "l40", "NVIDIA A10G", "nvidia", "hopper"})
    EXPECT_THAT(refusal([name] { load_hardware(name); }), HasSubstr("neither a known GPU nor a file"))
        << name;
  EXPECT_THAT(refusal([] { load_hardware("h200-sx"); }), HasSubstr("did you mean h200-sxm?"));
  EXPECT_THAT(refusal([] { load_hardware("groq"); }), ::testing::Not(HasSubstr("did you mean")));
}

// Everything but what 0 stands in for: hardware.proto says what.
TEST(Hardware, EveryConstantIsRequired) {
  const TemporaryFolder folder("required");
  const Json good = Json::parse(*catalogue::find("hardware", "h200-sxm"));
  const std::vector<std::string> optional = {"clock_hz",
                                             "dense_flops_fp8",
                                             "dense_flops_fp4",
                                             "l2_bytes",
                                             "shared_memory_bytes",
                                             "source",
                                             "efficiencies",
                                             "constant_fits",
                                             "device_names",
                                             "attention_stand_in",
                                             "name_words",
                                             "host",
                                             "network"};
  for (const auto& [key, value] : good.items()) {
    for (const bool null : {false, true}) {
      Json json = good;
      if (null) {
        json[key] = nullptr;
      } else {
        json.erase(key);
      }
      const std::string sentence = refusal([&] { load_hardware(folder.write("gpu.json", json.dump())); });
      if (!null && std::find(optional.begin(), optional.end(), key) != optional.end()) {
        EXPECT_EQ(sentence, "") << key;
      } else {
        EXPECT_THAT(sentence, AllOf(HasSubstr("gpu.json"), HasSubstr(key), HasSubstr("it must be"))) << key;
      }
    }
  }
}

TEST(Hardware, SaysWhatWouldBeRight) {
  const Json good = Json::parse(*catalogue::find("hardware", "h200-sxm"));
  const auto said = [&good](auto change) {
    Json json = good;
    change(json);
    return refusal([&] { parse_hardware(json.dump(), "gpu.json"); });
  };
  EXPECT_EQ(
      said([](Json& json) { json["memory_bandwidth"] = 1e-300; }),
      "gpu.json: \"memory_bandwidth\" is 1e-300; it must be a number from 1000000000 to 1e+16 (bytes per "
      "second)");
  EXPECT_EQ(said([](Json& json) { json.erase("kernel_launch_seconds"); }),
            "gpu.json: \"kernel_launch_seconds\" is missing; it must be a number from 0 to 1 (seconds)");
  EXPECT_EQ(said([](Json& json) { json["nvlink"] = "yes"; }),
            "gpu.json: \"nvlink\" is \"yes\"; it must be true or false");
  EXPECT_EQ(said([](Json& json) { json["nvlnik"] = true; }),
            "gpu.json: \"nvlnik\" is not a key of a hardware profile, did you mean nvlink?");
  EXPECT_EQ(said([](Json& json) { json["efficiencies"][0]["compute"] = nullptr; }),
            "gpu.json: efficiencies[0]: \"compute\" is null; it must be a number");
  EXPECT_EQ(
      said([](Json& json) { json["efficiencies"][0].erase("memory"); }),
      "gpu.json: operator class \"gemm\": \"memory\" is missing; it must be a number from 0.001 to 1 (a "
      "share of the bandwidth)");
  EXPECT_EQ(said([](Json& json) { json["efficiencies"][0]["parameters"]["fill"] = nullptr; }),
            "gpu.json: operator class \"gemm\": \"fill\" is null; it must be a number from 0.001 to 1000 (a "
            "factor)");
  EXPECT_EQ(
      said([](Json& json) { json["efficiencies"][0]["parameters"]["fil"] = 1; }),
      "gpu.json: operator class \"gemm\": \"fil\" is not a parameter of this class, did you mean fill?");
  EXPECT_THAT(said([](Json& json) { json["efficiencies"][0]["operator_class"] = "gem"; }),
              HasSubstr("use gemm"));
  EXPECT_THAT(said([](Json& json) { json["efficiencies"][1] = json["efficiencies"][0]; }),
              HasSubstr("given twice"));
  EXPECT_THAT(said([](Json& json) { json["architecture"] = "rubin"; }), HasSubstr("turing, ampere, ada"));
  EXPECT_THAT(said([](Json& json) { json["efficiencies"] = 3; }), HasSubstr("it must be an array"));
}

// A copy of a catalogue file has no attention classes, which are in files of their own.
TEST(Hardware, AFileTakesTheAttentionOfItsGpu) {
  const TemporaryFolder folder("attention");
  const std::string file = folder.write("gpu.json", std::string(*catalogue::find("hardware", "h200-sxm")));
  EXPECT_EQ(load_hardware(file).ShortDebugString(), load_hardware("h200-sxm").ShortDebugString());
}

TEST(Hardware, FilesAreChecked) {
  const TemporaryFolder folder("hardware");
  const Json good = Json::parse(*catalogue::find("hardware", "h200-sxm"));
  const auto refused = [&](const Json& json) {
    const std::string file = folder.write("gpu.json", json.dump());
    const std::string sentence = refusal([&] { load_hardware(file); });
    if (!sentence.empty()) {
      EXPECT_THAT(sentence, HasSubstr("gpu.json"));
    }
    return sentence;
  };
  EXPECT_EQ(refused(good), "");
  Json json = good;
  json["mempry_bytes"] = 3;
  EXPECT_THAT(refused(json), HasSubstr("mempry_bytes"));
  json = good;
  json["version"] = 77;
  EXPECT_THAT(refused(json), HasSubstr("version 77"));
  for (const char* key :
       {"multiprocessors", "dense_flops_bf16", "memory_bytes", "memory_bandwidth", "link_bandwidth"}) {
    for (const Json& value : {Json(0), Json(-5), Json("NaN"), Json("x"), Json(1e30)}) {
      json = good;
      json[key] = value;
      EXPECT_NE(refused(json), "") << key << value;
    }
  }
  for (const char* key : {"kernel_launch_seconds", "graph_replay_seconds", "graph_kernel_gap_seconds",
                          "scheduler_step_seconds", "l2_bytes", "clock_hz"}) {
    json = good;
    json[key] = -1;
    EXPECT_NE(refused(json), "") << key;
  }
  for (const char* key : {"compute", "memory"}) {
    for (const double value : {0.0, -1.0, 1.5}) {
      json = good;
      json["efficiencies"][0][key] = value;
      EXPECT_THAT(refused(json), HasSubstr("\"gemm\"")) << key << value;
    }
  }
  json = good;
  json["efficiencies"][0]["parameters"]["overlap"] = -1;
  EXPECT_THAT(refused(json), HasSubstr("overlap"));
  const std::string file = folder.write("gpu.json", "{");
  EXPECT_THAT(refusal([&] { load_hardware(file); }), HasSubstr("not a hardware profile"));
}

}  // namespace
}  // namespace tpsim::rank
