// What is true of an architecture stands in the file of its family: no other source asks for one by its name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "rank/config/families.h"

namespace tpsim::rank {
namespace {

TEST(FamilyNames, StandInTheFamiliesOwnFilesOnly) {
  const std::regex literal("\"\\w+(ForCausalLM|ForConditionalGeneration|ChatModel)\\w*\"");
  const std::filesystem::path root = TPSIM_SOURCE_DIR;
  for (const char* const room : {"proto", "kvcache", "attention", "scheduler", "rank", "launch"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / room)) {
      const std::filesystem::path path = entry.path();
      const std::string name = path.lexically_relative(root).string();
      // Towers that compute and the encoders of diffusion pipelines describe themselves in the same way.
      if ((path.extension() != ".cc" && path.extension() != ".h") ||
          name.starts_with("rank/config/families/") || name.starts_with("rank/numeric/vision/") ||
          name == "rank/diffusion/encoder.cc")
        continue;
      std::ifstream stream(path);
      for (std::string line; std::getline(stream, line);)
        EXPECT_FALSE(std::regex_search(line.substr(0, line.find("//")), literal)) << name << ": " << line;
    }
  }
}

TEST(FamilyNames, EachArchitectureIsReadByOneFamily) {
  std::set<std::string_view> names, seeing;
  for (const ModelFamily* family : model_families()) {
    for (const Architecture& row : family->architectures)
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const VisionArchitecture& row : family->vision)
      EXPECT_TRUE(seeing.insert(row.name).second) << row.name;
  }
  EXPECT_EQ(find_architecture("BertModel").family, nullptr);
}

}  // namespace
}  // namespace tpsim::rank
