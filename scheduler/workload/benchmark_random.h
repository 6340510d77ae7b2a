// The random numbers of SGLang's serving benchmark, bit for bit: a seed draws the same lengths, in the same
// order, here and there.
//
// The benchmark calls np.random.seed(seed) and random.seed(seed) once. Both are the Mersenne Twister of
// std::mt19937, seeded differently and read differently (NumPy's legacy RandomState, CPython's
// _randommodule.c and random.py). np.random.default_rng(seed) is PCG64, seeded by NumPy's SeedSequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tpsim::scheduler {

// np.random after np.random.seed(seed).
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : random_(seed) {}
  // np.random.randint(low, high + 1): from low to high. REQUIRES: low <= high < low + 2^32 - 1.
  std::uint64_t randint(std::uint64_t low, std::uint64_t high);
  // The benchmark's compute_random_lens: a length, and `count` of them, from ratio * length, at least 1, up
  // to length. REQUIRES: 1 <= length < 2^32, ratio in [0, 1].
  std::uint32_t length(std::uint64_t length, double ratio);
  std::vector<std::uint32_t> lengths(std::uint64_t length, double ratio, std::uint64_t count);

 private:
  std::mt19937 random_;
};

// Python's random after random.seed(seed).
class PythonRandom {
 public:
  explicit PythonRandom(std::uint32_t seed);
  // As if random.random() had been called `count` times.
  void skip(std::uint64_t count) { random_.discard(2 * count); }
  // random.shuffle. REQUIRES: fewer than 2^32 values.
  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      using std::swap;
      swap(values[i - 1], values[below(static_cast<std::uint32_t>(i))]);
    }
  }

 private:
  std::uint32_t below(std::uint32_t bound);
  std::mt19937 random_;
};

// np.random.default_rng(seed).
class NumpyGenerator {
 public:
  explicit NumpyGenerator(std::uint32_t seed);
  // random(): in [0, 1), 53 bits.
  double uniform();

 private:
  __extension__ using State = unsigned __int128;
  void step();
  State state_ = 0;
  State increment_ = 0;
};

}  // namespace tpsim::scheduler
