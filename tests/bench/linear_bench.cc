// Linear layers against what the machine can do: Eigen's product of the same shape, the rate of fused
// multiply-adds, the rate of reading memory.
//
//   tpsim_linear_bench --benchmark_filter=...     arguments: rows, threads
//
// flops and bytes are per second; a pool of all cores is one with threads 0.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <cstdint>
#include <random>
#include <vector>

#include "proto/base/lanes.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"

namespace {

using namespace tpsim;

// One matrix of a 1.1 B llama (gate and up together), and enough of them that no cache holds all.
constexpr std::uint32_t kN = 11264;
constexpr std::uint32_t kK = 2048;
constexpr std::uint32_t kMatrices = 8;

std::vector<float> random_vector(std::size_t size) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(size);
  for (float& value : values) value = uniform(random);
  return values;
}

const std::vector<rank::PackedMatrix>& matrices(rank::WeightType type) {
  static std::vector<rank::PackedMatrix> of[2];
  std::vector<rank::PackedMatrix>& out = of[type == rank::WeightType::kBf16 ? 0 : 1];
  if (out.empty()) {
    const std::vector<float> row = random_vector(kK);
    for (std::uint32_t i = 0; i < kMatrices; ++i)
      out.emplace_back(type, kN, kK,
                       [&](std::uint32_t, float* to) { std::copy(row.begin(), row.end(), to); });
  }
  return out;
}

void multiply(benchmark::State& state, rank::WeightType type) {
  const auto rows = static_cast<std::uint32_t>(state.range(0));
  rank::ThreadPool pool(static_cast<std::uint32_t>(state.range(1)));
  const auto& all = matrices(type);
  const std::vector<float> x = random_vector(std::size_t{rows} * kK);
  std::vector<float> y(std::size_t{rows} * kN);
  std::size_t i = 0;
  for (auto _ : state) all[i++ % kMatrices].multiply(x.data(), rows, kK, y.data(), kN, nullptr, pool);
  const double times = static_cast<double>(state.iterations());
  state.counters["flops"] = benchmark::Counter(2.0 * rows * kN * kK * times, benchmark::Counter::kIsRate);
  state.counters["bytes"] =
      benchmark::Counter(static_cast<double>(all[0].bytes()) * times, benchmark::Counter::kIsRate);
}
void bf16_weights(benchmark::State& state) { multiply(state, rank::WeightType::kBf16); }
void fp32_weights(benchmark::State& state) { multiply(state, rank::WeightType::kFp32); }

void eigen(benchmark::State& state) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto rows = static_cast<Eigen::Index>(state.range(0));
  const std::vector<float> w = random_vector(std::size_t{kN} * kK);
  const std::vector<float> x = random_vector(static_cast<std::size_t>(rows) * kK);
  const Eigen::Map<const Matrix> weights(w.data(), kN, kK);
  const Eigen::Map<const Matrix> in(x.data(), rows, kK);
  Matrix out(rows, kN);
  for (auto _ : state) {
    out.noalias() = in * weights.transpose();
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["flops"] =
      benchmark::Counter(2.0 * static_cast<double>(rows) * kN * kK * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

// Independent chains of fused multiply-adds in registers, on every thread.
void peak_flops(benchmark::State& state) {
  rank::ThreadPool pool(static_cast<std::uint32_t>(state.range(0)));
  constexpr std::uint32_t kChains = 16;
  constexpr std::uint32_t kSteps = 1 << 20;
  for (auto _ : state) {
    pool.parallel_for(pool.size(), [&](std::uint32_t, std::uint32_t) {
      lanes::Vector sums[kChains] = {};
      lanes::Vector a = lanes::splat(1.0001F);
      benchmark::DoNotOptimize(a);
      for (std::uint32_t i = 0; i < kSteps; ++i) {
        for (lanes::Vector& sum : sums) sum = sum * a + a;
      }
      for (lanes::Vector& sum : sums) benchmark::DoNotOptimize(sum);
    });
  }
  state.counters["flops"] = benchmark::Counter(
      2.0 * kChains * kSteps * lanes::kLanes * pool.size() * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

// Sums of an array that is larger than every cache.
void read_memory(benchmark::State& state) {
  rank::ThreadPool pool(static_cast<std::uint32_t>(state.range(0)));
  static const std::vector<float> data(std::size_t{1} << 28, 1.0F);
  constexpr std::uint32_t kParts = 64;
  const std::size_t part = data.size() / kParts;
  for (auto _ : state) {
    pool.parallel_for(kParts, [&](std::uint32_t i, std::uint32_t) {
      lanes::Vector sums[8] = {};
      const float* at = data.data() + i * part;
      for (std::size_t k = 0; k < part; k += 8 * lanes::kLanes) {
        for (std::size_t s = 0; s < 8; ++s) sums[s] += lanes::load(at + k + s * lanes::kLanes);
      }
      for (lanes::Vector& sum : sums) benchmark::DoNotOptimize(sum);
    });
  }
  state.counters["bytes"] = benchmark::Counter(
      static_cast<double>(data.size() * sizeof(float)) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

BENCHMARK(peak_flops)->Arg(1)->Arg(0)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(read_memory)->Arg(1)->Arg(0)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(bf16_weights)
    ->ArgsProduct({{1, 4, 16, 64, 512, 2048}, {1, 0}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(fp32_weights)->ArgsProduct({{1, 16, 512}, {1, 0}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(eigen)->Arg(1)->Arg(16)->Arg(512)->Unit(benchmark::kMillisecond);

}  // namespace
