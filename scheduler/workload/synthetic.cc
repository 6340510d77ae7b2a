#include "scheduler/workload/synthetic.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {
namespace {

constexpr std::uint64_t kMaxPrompts = 100'000'000;

void check_range(const char* flag, std::uint64_t value, std::uint64_t max) {
  if (value == 0 || value > max) {
    throw_user_error("{} is {}; a whole number from 1 to {} is needed", flag, value, max);
  }
}

}  // namespace

Workload make_random_workload(const RandomOptions& options) {
  NumpyRandom random(options.seed);
  return make_random_workload(options, random);
}

Workload make_random_workload(const RandomOptions& options, NumpyRandom& random) {
  check_range("--num-prompts", options.num_prompts, kMaxPrompts);
  check_range("--random-input-len", options.random_input_len, kMaxRequestTokens);
  check_range("--random-output-len", options.random_output_len, kMaxRequestTokens);
  if (!(options.random_range_ratio >= 0 && options.random_range_ratio <= 1)) {
    throw_user_error("--random-range-ratio is {}; a number from 0 to 1 is needed",
                     options.random_range_ratio);
  }
  if (options.random_input_len > kGeneratedTokenBase / options.num_prompts) {
    throw_user_error("--num-prompts times --random-input-len is more than 2^48 tokens; make one smaller");
  }
  // All input lengths are drawn before all output lengths, as in the benchmark.
  const std::vector<std::uint32_t> inputs =
      random.lengths(options.random_input_len, options.random_range_ratio, options.num_prompts);
  const std::vector<std::uint32_t> outputs =
      random.lengths(options.random_output_len, options.random_range_ratio, options.num_prompts);

  Workload workload;
  workload.name = "random";
  workload.format = "random";
  workload.requests.resize(options.num_prompts);
  kvcache::TokenId next = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    workload.requests[i].prompt.append({next, inputs[i]});
    workload.requests[i].max_new_tokens = outputs[i];
    next += inputs[i];
  }
  return workload;
}

}  // namespace tpsim::scheduler
