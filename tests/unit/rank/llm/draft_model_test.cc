#include "rank/llm/draft_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proto/base/error.h"
#include "rank/catalogue/catalogue.h"
#include "rank/config/catalogue_models.h"
#include "rank/config/model_config.h"

namespace tpsim::rank {
namespace {

TEST(CatalogueDrafts, EachFitsItsTargetUnderEveryOfItsNames) {
  const auto names = catalogue::names("drafts");
  ASSERT_GE(names.size(), 9u);
  for (const std::string& name : names) {
    const auto json = nlohmann::json::parse(*catalogue::find("drafts", name));
    EXPECT_FALSE(json.at("_source").get<std::string>().empty());
    const ModelConfig target = load_model_config(json.at("_target"));
    const bool third = json.at("architectures").at(0) == "LlamaForCausalLMEagle3";
    std::vector<std::string> ids = json.at("_ids");
    ids.push_back(name);
    for (const std::string& id : ids) {
      const DraftModel draft = load_draft_model(third ? "EAGLE3" : "EAGLE", id, target);
      EXPECT_EQ(draft.config.name, name);
      EXPECT_EQ(draft.config.num_layers, 1u);
      EXPECT_EQ(draft.kind, third ? DraftKind::kEagle3 : DraftKind::kEagle);
      EXPECT_EQ(draft.config.vocab_size, third ? 32000u : target.vocab_size);
    }
  }
}

TEST(CatalogueDrafts, WhatIsMissingNamesThem) {
  const ModelConfig target = load_model_config("llama-3.1-8b");
  try {
    load_draft_model("EAGLE3", "", target);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B"), std::string::npos);
  }
  EXPECT_FALSE(catalogue_draft("llama-3.1-8b"));
  EXPECT_TRUE(catalogue_draft("LMSYS/eagle3-gpt-oss-120b-BF16"));
}

}  // namespace
}  // namespace tpsim::rank
