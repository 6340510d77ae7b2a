#include <gtest/gtest.h>

#include "rank/weights/checkpoint_json.h"
#include "tests/unit/rank/weights/expect_user_error.h"

namespace tpsim::rank {
namespace {

using testing::expect_user_error;

TEST(WeightMap, SaysWhichFileHasWhichTensor) {
  const WeightMap map = parse_weight_map(
      R"({"metadata":{"total_size":1e9,"weight_map":{"no":"x"},"list":[{"a":"b"}]},
          "weight_map":{"b":"2.safetensors","a":"1.safetensors","c":"1.safetensors"},"weight":[]})",
      "index");
  ASSERT_EQ(map.size(), 2U);
  EXPECT_EQ(map.at("1.safetensors"), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(map.at("2.safetensors"), (std::vector<std::string>{"b"}));
}

TEST(WeightMap, MistakesAreNamed) {
  const auto refused = [](const std::string& json, const std::string& part) {
    expect_user_error([&] { parse_weight_map(json, "here.json"); }, {"here.json", part});
  };
  refused("", "not valid JSON");
  refused("{", "not valid JSON");
  refused("[]", "not a JSON object");
  refused("3", "not a JSON object");
  refused("{}", "has no \"weight_map\"");
  refused(R"({"x":{"weight_map":{"a":"b.safetensors"}}})", "has no \"weight_map\"");
  refused(R"({"weight_map":{}})", "is empty");
  refused(R"({"weight_map":[]})", "must be an object");
  refused(R"({"weight_map":"x"})", "must be an object");
  refused(R"({"weight_map":{"a":"1.safetensors"},"weight_map":{}})", "\"weight_map\" twice");
  refused(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})",
          "tensor \"a\" is in \"weight_map\" twice");
  refused(R"({"weight_map":{"a":1}})", "the name of a file for tensor \"a\"");
  refused(R"({"weight_map":{"a":["1.safetensors"]}})", "the name of a file for tensor \"a\"");
  for (const char* name : {"../1.safetensors", "/etc/1.safetensors", "a/b.safetensors", "pytorch_model.bin",
                           "", "x\\u0000.safetensors"}) {
    refused(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name), "in the same folder is needed");
  }
  refused(R"({"weight_map":{"a":")" + std::string(300, 'x') + R"(.safetensors"}})", "in the same folder");
}

}  // namespace
}  // namespace tpsim::rank
