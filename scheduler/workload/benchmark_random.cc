#include "scheduler/workload/benchmark_random.h"

#include <algorithm>
#include <array>
#include <bit>

namespace tpsim::scheduler {
namespace {

// The Mersenne Twister's init_by_array (Matsumoto and Nishimura, 2002) with a key of one word, as a seed
// sequence: std::mt19937 takes the words that it generates as its state.
class InitByArray {
 public:
  using result_type = std::uint32_t;
  explicit InitByArray(std::uint32_t key) : key_(key) {}

  template <typename Iterator>
  void generate(Iterator first, Iterator last) const {
    const auto n = static_cast<std::uint32_t>(last - first);
    first[0] = 19650218U;
    for (std::uint32_t i = 1; i < n; ++i) first[i] = 1812433253U * mixed(first[i - 1]) + i;
    std::uint32_t i = 1;
    const auto advance = [&] {
      if (++i < n) return;
      first[0] = first[n - 1];
      i = 1;
    };
    for (std::uint32_t k = 0; k < n; ++k, advance()) {
      first[i] = (first[i] ^ (mixed(first[i - 1]) * 1664525U)) + key_;
    }
    for (std::uint32_t k = 1; k < n; ++k, advance()) {
      first[i] = (first[i] ^ (mixed(first[i - 1]) * 1566083941U)) - i;
    }
    first[0] = 0x80000000U;
  }

 private:
  static std::uint32_t mixed(std::uint32_t word) { return word ^ (word >> 30); }
  std::uint32_t key_;
};

// NumPy's SeedSequence(seed).generate_state(4, uint64) for a seed of one word.
std::array<std::uint64_t, 4> seed_sequence(std::uint32_t seed) {
  std::uint32_t constant = 0x43b0d7e5U;
  const auto hash = [&constant](std::uint32_t value, std::uint32_t multiplier) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ (value >> 16);
  };
  std::array<std::uint32_t, 4> pool{};
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i == 0 ? seed : 0, 0x931e8875U);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const std::uint32_t mixed = 0xca01f9ddU * pool[to] - 0x4973f715U * hash(pool[from], 0x931e8875U);
      pool[to] = mixed ^ (mixed >> 16);
    }
  }
  constant = 0x8b51f9ddU;
  std::array<std::uint64_t, 4> state{};
  for (std::size_t i = 0; i < state.size(); ++i) {
    const std::uint64_t low = hash(pool[2 * i % pool.size()], 0x58f38dedU);
    state[i] = low | std::uint64_t{hash(pool[(2 * i + 1) % pool.size()], 0x58f38dedU)} << 32;
  }
  return state;
}

}  // namespace

std::uint64_t NumpyRandom::randint(std::uint64_t low, std::uint64_t high) {
  const auto range = static_cast<std::uint32_t>(high - low);
  if (range == 0) return low;
  const std::uint32_t mask = 0xffffffffU >> std::countl_zero(range);
  for (;;) {
    const std::uint32_t value = static_cast<std::uint32_t>(random_()) & mask;
    if (value <= range) return low + value;
  }
}

std::uint32_t NumpyRandom::length(std::uint64_t length, double ratio) {
  const auto least = static_cast<std::uint64_t>(static_cast<double>(length) * ratio);
  return static_cast<std::uint32_t>(randint(std::max<std::uint64_t>(1, least), length));
}

std::vector<std::uint32_t> NumpyRandom::lengths(std::uint64_t length, double ratio, std::uint64_t count) {
  std::vector<std::uint32_t> drawn(count);
  for (std::uint32_t& value : drawn) value = this->length(length, ratio);
  return drawn;
}

PythonRandom::PythonRandom(std::uint32_t seed) {
  InitByArray sequence(seed);
  random_.seed(sequence);
}

std::uint32_t PythonRandom::below(std::uint32_t bound) {
  for (;;) {
    const std::uint32_t value = static_cast<std::uint32_t>(random_()) >> std::countl_zero(bound);
    if (value < bound) return value;
  }
}

NumpyGenerator::NumpyGenerator(std::uint32_t seed) {
  const std::array<std::uint64_t, 4> words = seed_sequence(seed);
  increment_ = (State{words[2]} << 64 | words[3]) << 1 | 1;
  step();
  state_ += State{words[0]} << 64 | words[1];
  step();
}

void NumpyGenerator::step() {
  constexpr State kMultiplier = State{0x2360ed051fc65da4U} << 64 | 0x4385df649fccf645U;
  state_ = state_ * kMultiplier + increment_;
}

double NumpyGenerator::uniform() {
  step();
  const auto folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
  const std::uint64_t value = std::rotr(folded, static_cast<int>(state_ >> 122));
  return static_cast<double>(value >> 11) * 0x1.0p-53;
}

}  // namespace tpsim::scheduler
