#include "rank/model/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rank/catalogue/catalogue.h"
#include "tests/unit/model/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(Hardware, EveryEntryOfTheCatalogueIsWhole) {
  EXPECT_EQ(hardware_catalogue(),
            (std::vector<std::string>{"a100-sxm", "b200", "h100-sxm", "h200-sxm", "l40s"}));
  for (const std::string& name : hardware_catalogue()) {
    const proto::HardwareProfile profile = load_hardware(name);
    EXPECT_EQ(profile.name(), name);
    EXPECT_FALSE(profile.source().empty()) << name;
    for (const char* operator_class : {"gemm", "moe", "all_reduce.custom", "all_reduce.nccl", "all_gather"}) {
      bool found = false;
      for (const auto& entry : profile.efficiencies()) found |= entry.operator_class() == operator_class;
      EXPECT_TRUE(found) << name << " " << operator_class;
    }
    bool attention = false;
    for (const auto& entry : profile.efficiencies())
      attention |= entry.operator_class().starts_with("attention.");
    EXPECT_TRUE(attention) << name;
  }
}

TEST(Hardware, UnknownNamesSayWhatIsKnown) {
  EXPECT_THAT(refusal([] { load_hardware("h300"); }),
              AllOf(HasSubstr("--hardware h300"), HasSubstr("h200-sxm")));
  EXPECT_NE(refusal([] { load_hardware(""); }), "");
  EXPECT_NE(refusal([] { load_hardware("/"); }), "");
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
