// Inputs near good ones, the same on every run: what stands in for a fuzzer where there is none.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tpsim::fuzz {

class Mutator {
 public:
  // REQUIRES: `seeds` is not empty.
  Mutator(std::vector<std::string> seeds, std::uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

  // One of the seeds with one to eight changes: bytes flipped, cut, doubled or moved, numbers replaced by
  // awkward ones, the end cut off, the rest of another seed put behind.
  std::string next();

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  void change(std::string& text);

  std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

}  // namespace tpsim::fuzz
