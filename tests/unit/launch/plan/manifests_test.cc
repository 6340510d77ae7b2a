#include "launch/plan/manifests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tpsim::launch::manifests_test {
namespace {

using Json = nlohmann::ordered_json;

// As YAML reads it: every scalar is a string.
Json read(const YAML::Node& node) {
  Json out;
  if (node.IsMap()) {
    out = Json::object();
    for (const auto& entry : node) out[entry.first.as<std::string>()] = read(entry.second);
  } else if (node.IsSequence()) {
    out = Json::array();
    for (const YAML::Node& one : node) out.push_back(read(one));
  } else {
    out = node.as<std::string>();
  }
  return out;
}

ContainerCommands commands(std::uint32_t replicas) {
  ContainerCommands out;
  out.replicas = replicas;
  out.gpus = 2;
  out.server = {
      {{"SGLANG_VLM_CACHE_SIZE_MB", "50"}},
      {"python3", "-m", "sglang.launch_server", "--json", "{\"a\": [1, true]}", "$HOME", "it's", "on"}};
  if (replicas > 1) out.router.words = {"python3", "-m", "sglang_router.launch_router", "--worker-urls"};
  return out;
}

TEST(Yaml, ReadsBackAsItWasWritten) {
  const Json json = {
      {"plain", "a/b-c.d"},
      {"words", {"yes", "No", "null", "", " x", "- y", "a: b", "#", "1e3", "--flag", "-", "---", "n"}},
      {"nested", {{{"name", "x"}, {"list", {{{"deep", "{}"}}}}}, {{"name", "ü\n\"\\"}}}}};
  EXPECT_EQ(read(YAML::Load(to_yaml(json))), json);
  EXPECT_EQ(to_yaml({{"a", "true"}, {"b", true}, {"c", "8"}, {"d", 8}, {"e", Json::array()}}),
            "a: \"true\"\nb: true\nc: \"8\"\nd: 8\ne: []\n");
}

TEST(Manifests, GiveEachServerGpusOfItsOwn) {
  const Json services = compose_file(commands(3), "image:v1").at("services");
  ASSERT_EQ(services.size(), 4u);
  EXPECT_EQ(services.at("server-2")
                .at("deploy")
                .at("resources")
                .at("reservations")
                .at("devices")[0]
                .at("device_ids"),
            Json({"4", "5"}));
  EXPECT_FALSE(services.at("server-2").contains("ports"));
  EXPECT_EQ(services.at("router").at("ports"), Json::array({"30000:30000"}));
  EXPECT_EQ(services.at("router").at("command").back(), "http://server-2:30000");
  EXPECT_EQ(services.at("router").at("depends_on").size(), 3u);
  const Json alone = compose_file(commands(1), "image:v1").at("services");
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone.at("server").at("ports"), Json::array({"30000:30000"}));
  EXPECT_EQ(alone.at("server").at("environment").at("SGLANG_VLM_CACHE_SIZE_MB"), "50");
  EXPECT_EQ(alone.at("server").at("command")[5], "$$HOME") << "Compose would put the variable in";
}

TEST(Manifests, AreObjectsThatKubernetesKnows) {
  const std::vector<Json> objects = kubernetes_objects(commands(2), "image:v1");
  std::vector<std::string> kinds;
  for (const Json& object : objects) {
    kinds.push_back(object.at("apiVersion").get<std::string>() + " " + object.at("kind").get<std::string>());
    EXPECT_EQ(read(YAML::Load(to_yaml(object))).at("metadata"), object.at("metadata"));
  }
  EXPECT_THAT(kinds,
              testing::ElementsAre("apps/v1 StatefulSet", "v1 Service", "apps/v1 Deployment", "v1 Service"));
  const Json& server = objects[0].at("spec").at("template").at("spec").at("containers")[0];
  EXPECT_EQ(server.at("resources").at("limits").at("nvidia.com/gpu"), 2);
  EXPECT_EQ(server.at("command"), Json(commands(2).server.words));
  EXPECT_EQ(server.at("env")[0], Json({{"name", "SGLANG_VLM_CACHE_SIZE_MB"}, {"value", "50"}}));
  EXPECT_EQ(objects[2].at("spec").at("template").at("spec").at("containers")[0].at("command").back(),
            "http://sglang-server-1.sglang-server:30000");
  EXPECT_EQ(kubernetes_objects(commands(1), "image:v1").size(), 2u);
}

TEST(Manifests, AScriptOfSeveralHostsTakesTheNumberOfOne) {
  EXPECT_THAT(launch_script({"A=1 x"}), testing::EndsWith("\nexec env A=1 x\n"));
  EXPECT_THAT(launch_script({"x", "y"}), testing::HasSubstr("\n2)\n  exec env y\n"));
}

}  // namespace
}  // namespace tpsim::launch::manifests_test
