// What a rank takes to price a pass: a decode step of N requests whose lengths are all different and grow by
// one token a step, and a prefill of N ragged requests. Llama 3.1 8B on an H200, calibrated, CUDA graphs.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/selection/registry.h"
#include "rank/cost/hardware.h"
#include "rank/llm/memory.h"
#include "rank/llm/modeled_forward.h"

namespace tpsim::rank {
namespace {

const std::vector<std::string> kBackends = {"fa3", "flashinfer", "triton", "torch_native"};

std::unique_ptr<ModeledForward> make(const std::string& backend) {
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  const ModelConfig model = load_model_config("llama-3.1-8b");
  ModeledForward::Options options;
  if (backend != "torch_native") options.cuda_graph_bs = capture_batch_sizes(256);
  return std::make_unique<ModeledForward>(model, profile, make_shard(model, 1, 0),
                                          attention::create_attention_backend(backend, profile, 1),
                                          std::move(options));
}

// Lengths of 200 to 9,000 tokens.
std::vector<std::uint32_t> ragged(std::size_t requests, std::mt19937_64& random) {
  std::vector<std::uint32_t> lens(requests);
  for (std::uint32_t& len : lens) len = std::uniform_int_distribution<std::uint32_t>(200, 9000)(random);
  return lens;
}

void BM_Decode(benchmark::State& state) {
  const std::string& backend = kBackends[static_cast<std::size_t>(state.range(0))];
  const auto requests = static_cast<std::uint32_t>(state.range(1));
  const auto forward = make(backend);
  std::mt19937_64 random(requests);
  std::vector<std::uint32_t> lens = ragged(requests, random);
  attention::ForwardMetadata metadata;
  metadata.forward_mode = proto::DECODE;
  metadata.capture_bucket = backend == "torch_native" ? 0 : requests;
  for (auto _ : state) {
    // Answers of 2,000 tokens, then other requests.
    if (lens[0] > 11000) lens = ragged(requests, random);
    for (std::uint32_t& len : lens) ++len;
    metadata.decode_seq_lens = lens;
    benchmark::DoNotOptimize(forward->forward(metadata));
  }
  state.SetLabel(backend);
}
BENCHMARK(BM_Decode)->ArgNames({"backend", "requests"})->ArgsProduct({{0, 1, 2, 3}, {1, 64, 256}});

void BM_Prefill(benchmark::State& state) {
  const std::string& backend = kBackends[static_cast<std::size_t>(state.range(0))];
  const auto requests = static_cast<std::uint32_t>(state.range(1));
  const auto forward = make(backend);
  std::mt19937_64 random(requests);
  std::vector<std::vector<std::uint32_t>> lens, prefixes;
  for (int i = 0; i < 64; ++i) {
    lens.push_back(ragged(requests, random));
    prefixes.push_back(ragged(requests, random));
  }
  attention::ForwardMetadata metadata;
  metadata.forward_mode = proto::EXTEND;
  for (std::size_t i = 0; auto _ : state) {
    metadata.extend_lens = lens[i % lens.size()];
    metadata.extend_prefix_lens = prefixes[i++ % prefixes.size()];
    benchmark::DoNotOptimize(forward->forward(metadata));
  }
  state.SetLabel(backend);
}
BENCHMARK(BM_Prefill)->ArgNames({"backend", "requests"})->ArgsProduct({{0, 1, 2, 3}, {1, 8}});

}  // namespace
}  // namespace tpsim::rank
