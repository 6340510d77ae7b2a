// Runs every target on its corpus and on mutations of it, without a fuzzer: replay CORPUS_DIR ROUNDS
// [TARGET]. Exits with 1, and leaves the input in the file fuzz-failure, where a target fails by an
// exception; a sanitizer ends the program itself.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/mutate.h"

namespace {

std::vector<std::string> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

bool passes(const tpsim::fuzz::FuzzTarget& target, const std::string& input) {
  try {
    target.run(input);
    return true;
  } catch (const std::exception& error) {
    std::ofstream("fuzz-failure", std::ios::binary) << input;
    std::fprintf(stderr, "%s: %s (the input is in fuzz-failure)\n", std::string(target.name).c_str(),
                 error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "use: %s CORPUS_DIR ROUNDS [TARGET]\n", argv[0]);
    return 2;
  }
  const std::filesystem::path corpus = argv[1];
  const long rounds = std::strtol(argv[2], nullptr, 10);
  for (const auto targets :
       {tpsim::fuzz::trace_targets(), tpsim::fuzz::weights_targets(), tpsim::fuzz::model_targets(),
        tpsim::fuzz::prompt_targets(), tpsim::fuzz::fleet_targets(), tpsim::fuzz::measurement_targets(),
        tpsim::fuzz::serve_targets(), tpsim::fuzz::checkpoint_targets(), tpsim::fuzz::diffusion_targets()}) {
    for (const tpsim::fuzz::FuzzTarget& target : targets) {
      if (argc > 3 && target.name != argv[3]) continue;
      std::vector<std::string> seeds = read_corpus(corpus / target.name);
      if (seeds.empty()) {
        std::fprintf(stderr, "%s has no examples for %s\n", argv[1], std::string(target.name).c_str());
        return 1;
      }
      for (const std::string& seed : seeds) {
        if (!passes(target, seed)) return 1;
      }
      tpsim::fuzz::Mutator mutator(std::move(seeds), 1);
      for (long i = 0; i < rounds; ++i) {
        if (!passes(target, mutator.next())) return 1;
      }
      std::printf("%s: %ld mutations\n", std::string(target.name).c_str(), rounds);
    }
  }
  return 0;
}
