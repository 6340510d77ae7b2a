// What SGLang 0.5.23's own ServerArgs makes of 500 random command lines (tests/references/
// record_diffusion_server_args.py): who shares the GPUs, where weights stay, and what is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "launch/cli/flag_command.h"
#include "launch/diffusion/attention_choice.h"
#include "launch/diffusion/parallelism.h"
#include "launch/diffusion/pipeline_args.h"
#include "launch/diffusion/residency.h"
#include "proto/base/error.h"

namespace tpsim::launch::server_args_test {

using nlohmann::json;

std::string name_of(rank::Residency residency) {
  return residency == rank::Residency::kResident           ? "resident"
         : residency == rank::Residency::kComponentOffload ? "component-offload"
                                                           : "layerwise-offload";
}

rank::PipelineConfig config_of(const std::string& name, const json& model) {
  rank::PipelineConfig config;
  config.name = config.class_name = name.substr(0, name.find(' '));
  config.video = model["video"];
  config.defaults.guided = model["guided"];
  for (const auto& [key, value] : model["components"].items()) {
    rank::PipelineComponent c;
    c.name = key;
    c.kind = value[0] == "text_encoder"    ? rank::ComponentKind::kTextEncoder
             : value[0] == "transformer"   ? rank::ComponentKind::kTransformer
             : value[0] == "image_encoder" ? rank::ComponentKind::kImageEncoder
                                           : rank::ComponentKind::kVae;
    c.parameters = value[1].get<std::uint64_t>() * 1'000'000;
    c.bytes_per_parameter = value[2];
    config.components.push_back(c);
  }
  return config;
}

json answer(const rank::PipelineConfig& config, double gib, const std::string& words) {
  std::istringstream text(words);
  PipelineArgs args;
  try {
    read_words("generate", {std::istream_iterator<std::string>(text), {}},
               [&args](FlagSet& flags) { declare_pipeline(flags, args); });
    const DeploymentRule& rule = deployment_rule(config);
    const Parallelism p =
        resolve_parallelism(args.parallel, rule, config.defaults.guided, args.performance_mode == "manual");
    proto::HardwareProfile gpu;
    gpu.set_architecture("hopper");
    choose_attention(args.attention, config, gpu, p.ring);
    json out = {{"tp", p.tp},
                {"dp", p.dp},
                {"cfg", p.cfg},
                {"sp", p.sp},
                {"ulysses", p.ulysses},
                {"ring", p.ring},
                {"kv_gather", p.kv_gather}};
    const ResidencyChoice residency =
        resolve_residency(args.residency, {.config = &config,
                                           .rule = &rule,
                                           .performance_mode = args.performance_mode,
                                           .memory_bytes = gib * kGib,
                                           .tp = p.tp,
                                           .batching_max_size = args.batching_max_size});
    for (const auto& [name, where] : residency.components) out["residency"][name] = name_of(where);
    return out;
  } catch (const UserError& error) {
    return {{"refused", true}, {"sentence", error.what()}};
  }
}

// SGLang takes degrees whose product is not the number of GPUs, and fails when it forms groups.
bool leaves_gpus(const json& recorded, std::uint64_t num_gpus) {
  return !recorded.contains("refused") &&
         recorded["tp"].get<std::uint64_t>() * recorded["dp"].get<std::uint64_t>() *
                 recorded["cfg"].get<std::uint64_t>() * recorded["sp"].get<std::uint64_t>() !=
             num_gpus;
}

TEST(ServerArgs, AreSglangs) {
  std::ifstream in(TPSIM_RECORDED);
  std::string line;
  ASSERT_TRUE(std::getline(in, line)) << TPSIM_RECORDED;
  const json models = json::parse(line)["models"];
  int lines = 0, refused = 0, left = 0;
  while (std::getline(in, line)) {
    const json recorded = json::parse(line);
    const std::string model = recorded["model"], words = recorded["words"];
    const json ours = answer(config_of(model, models[model]), recorded["gib"], words);
    const std::size_t at = words.find("--num-gpus ");
    const std::uint64_t gpus = at == std::string::npos ? 1 : std::stoul(words.substr(at + 11));
    ++lines;
    if (leaves_gpus(recorded, gpus)) {
      EXPECT_TRUE(ours.contains("refused")) << words;
      ++left;
      continue;
    }
    SCOPED_TRACE(model + ", " + recorded["gib"].dump() + " GiB: " + words);
    EXPECT_EQ(ours.contains("refused"), recorded.contains("refused")) << ours;
    if (recorded.contains("refused")) {
      ++refused;
      continue;
    }
    for (const auto& [key, value] : ours.items()) EXPECT_EQ(value, recorded.value(key, json())) << key;
  }
  EXPECT_EQ(lines, 500);
  EXPECT_GT(refused, 100);
  EXPECT_LT(left, 50);
}

}  // namespace tpsim::launch::server_args_test
