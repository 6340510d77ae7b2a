// The sentence that a call is refused with.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "proto/base/error.h"

namespace tpsim::rank {

// "" where `call` does not throw a UserError.
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// A folder that is gone after the test.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("tpsim_model_test_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }
  std::string write(const std::string& file, const std::string& text) const {
    std::ofstream(path_ / file, std::ios::binary) << text;
    return (path_ / file).string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tpsim::rank
