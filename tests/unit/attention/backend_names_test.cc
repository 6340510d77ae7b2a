// What is true of a backend stands in its file, and of its kernel for encoders in attention/full: no other
// source asks for one by its name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "attention/selection/registry.h"

namespace tpsim::attention::backend_names_test {
namespace {

// Files in which such a word names something else, or a row of a table that others made.
const std::set<std::string> kOthers = {
    "attention/sparse_kernels.cc",           // --nsa-prefill-backend, --nsa-decode-backend
    "rank/llm/linear_attention_cost.cc",     // --linear-attn-backend
    "launch/flags/state_flags.cc",           // the same
    "launch/deployment/states.cc",           // the same
    "launch/flags/kernel_flags.cc",          // --moe-runner-backend and its kin
    "launch/deployment/kernels.cc",          // the same
    "launch/flags/parallel_flags.cc",        // --moe-a2a-backend
    "launch/flags/speculation_flags.cc",     // --speculative-moe-a2a-backend
    "launch/lab/kernels/attention_rows.cc",  // kernel sources of measured tables
    "launch/lab/calibrate/kernel_fits.cc",   // the same
    "launch/lab/calibrate/sparse_fit.cc",    // the same
};

// Whether a line of `file`, comments aside, has a string literal that is a backend's name.
bool names_a_backend(const std::filesystem::path& file, const std::set<std::string, std::less<>>& names) {
  static const std::regex literal("\"([a-z0-9_]+)\"");
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    line = line.substr(0, line.find("//"));
    for (std::sregex_iterator at(line.begin(), line.end(), literal), end; at != end; ++at) {
      if (names.contains((*at)[1].str())) return true;
    }
  }
  return false;
}

TEST(BackendNames, StandInTheBackendsOwnFilesOnly) {
  std::set<std::string, std::less<>> names;
  for (const BackendDescription* backend : backend_list()) {
    names.emplace(backend->row.name);
    if (!backend->row.alias.empty()) names.emplace(backend->row.alias);
  }
  std::set<std::string> asking;
  const std::filesystem::path root = TPSIM_SOURCE;
  for (const char* const room : {"proto", "kvcache", "attention", "scheduler", "rank", "launch"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / room)) {
      const std::filesystem::path path = entry.path();
      const std::string name = path.lexically_relative(root).string();
      if ((path.extension() == ".cc" || path.extension() == ".h") &&
          !name.starts_with("attention/backends/") && !name.starts_with("attention/full/") &&
          !name.starts_with("attention/diffusion/backends/") && names_a_backend(path, names))
        asking.insert(name);
    }
  }
  EXPECT_EQ(asking, kOthers);
}

}  // namespace
}  // namespace tpsim::attention::backend_names_test
