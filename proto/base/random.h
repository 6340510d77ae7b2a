// Numbers that look random and are the same in every process: of a seed and a position alone.
#pragma once

#include <cstdint>

namespace tpsim {

inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15U;  // of 2^64, the golden ratio's part

// SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// In [0, 1), of the 53 highest bits.
constexpr double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace tpsim
