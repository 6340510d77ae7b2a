// Sixteen floats at a time, always in the same order: results do not depend on where the data lies or on how
// many rows there are, as they do with libraries that peel loops up to an aligned address. The compiler
// lowers the vectors to what the machine has. For targets that link tpsim_vectorised; every function is
// inlined, so that no two of them share code that was compiled for different machines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tpsim::lanes {

inline constexpr std::uint32_t kLanes = 16;
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

[[gnu::always_inline]] inline Vector load(const float* at) {
  Vector v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

[[gnu::always_inline]] inline void store(float* at, Vector v) { std::memcpy(at, &v, sizeof v); }

[[gnu::always_inline]] inline Vector splat(float x) { return Vector{} + x; }

// `count` < kLanes floats; the other lanes hold `fill`.
[[gnu::always_inline]] inline Vector load_part(const float* at, std::uint64_t count, float fill) {
  Vector v = splat(fill);
  std::memcpy(&v, at, count * sizeof(float));
  return v;
}

[[gnu::always_inline]] inline void store_part(float* at, std::uint64_t count, Vector v) {
  std::memcpy(at, &v, count * sizeof(float));
}

[[gnu::always_inline]] inline Vector larger(Vector a, Vector b) { return a > b ? a : b; }
[[gnu::always_inline]] inline Vector smaller(Vector a, Vector b) { return a < b ? a : b; }

// e^x to 2 units in the last place; 0 below -87.3, and no more than e^88.3. The polynomial of Cephes' expf
// (S. L. Moshier, Methods and Programs for Mathematical Functions, 1989).
[[gnu::always_inline]] inline Vector exp(Vector x) {
  const Vector in = smaller(splat(88.3F), larger(splat(-87.3F), x));
  const Vector turns = in * 1.44269504088896341F;
  const Ints n = __builtin_convertvector(turns + (turns < 0 ? splat(-0.5F) : splat(0.5F)), Ints);
  const Vector whole = __builtin_convertvector(n, Vector);
  const Vector r = (in - whole * 0.693359375F) + whole * 2.12194440e-4F;
  Vector p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Ints power = (n + 127) << 23;
  Vector scale;
  std::memcpy(&scale, &power, sizeof scale);
  const Vector result = x < -87.3F ? Vector{} : p * scale;
  return x == x ? result : x;  // NaN stays
}

// Cephes' tanhf: a polynomial near 0, else by e^2|x|.
[[gnu::always_inline]] inline Vector tanh(Vector x) {
  const Vector size = x < 0 ? -x : x;
  const Vector far = 1.0F - 2.0F / (exp(size + size) + 1.0F);
  const Vector z = x * x;
  Vector p = splat(-5.70498872745e-3F);
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const Vector near = p * z * x + x;
  return size < 0.625F ? near : (x < 0 ? -far : far);
}

[[gnu::always_inline]] inline float sum_of(Vector v) {
  float x[kLanes];
  std::memcpy(x, &v, sizeof x);
  for (std::uint32_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::uint32_t i = 0; i < half; ++i) x[i] += x[i + half];
  }
  return x[0];
}

// out[i] = f(first[i], more[i]…) for i < size; out may be any of the inputs.
template <typename F, typename... More>
[[gnu::always_inline]] inline void map(float* out, std::uint64_t size, F f, const More*... in) {
  std::uint64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(out + i, f(load(in + i)...));
  if (i < size) store_part(out + i, size - i, f(load_part(in + i, size - i, 0.0F)...));
}

// The sum of f(in[i]…), lane by lane, then over the lanes. f(0…) must be 0.
template <typename F, typename... More>
[[gnu::always_inline]] inline float reduce(std::uint64_t size, F f, const More*... in) {
  Vector sum{};
  std::uint64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) sum += f(load(in + i)...);
  if (i < size) sum += f(load_part(in + i, size - i, 0.0F)...);
  return sum_of(sum);
}

[[gnu::always_inline]] inline float sum(const float* x, std::uint64_t size) {
  return reduce(
      size, [](Vector v) { return v; }, x);
}

[[gnu::always_inline]] inline float dot(const float* x, const float* y, std::uint64_t size) {
  return reduce(
      size, [](Vector a, Vector b) { return a * b; }, x, y);
}

[[gnu::always_inline]] inline float largest(const float* x, std::uint64_t size) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  Vector best = splat(kNone);
  std::uint64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) best = larger(load(x + i), best);
  if (i < size) best = larger(load_part(x + i, size - i, kNone), best);
  float out = kNone;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) out = std::max(out, best[lane]);
  return out;
}

[[gnu::always_inline]] inline float exp(float x) { return exp(splat(x))[0]; }

}  // namespace tpsim::lanes
