// What tests/references/record_tokenizers.py recorded, and files for tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tpsim::launch::testing {

inline std::filesystem::path golden(std::string_view name) {
  return std::filesystem::path(TPSIM_SOURCE_DIR) / "tests/golden/tokenizers" / name;
}

inline nlohmann::ordered_json expected(std::string_view name) {
  std::ifstream file(golden(name) / "expected.json");
  return nlohmann::ordered_json::parse(file);
}

// A model folder of this process, removed at the end.
class ModelFolder {
 public:
  ModelFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("tpsim_tokenizer_test_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tpsim::launch::testing
