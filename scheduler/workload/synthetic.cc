#include "scheduler/workload/synthetic.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"

namespace tpsim::scheduler {
namespace {

constexpr std::uint64_t kMaxPrompts = 100'000'000;

void check_range(const char* flag, std::uint64_t value, std::uint64_t max) {
  if (value == 0 || value > max) {
    throw_user_error("{} is {}; a whole number from 1 to {} is needed", flag, value, max);
  }
}

}  // namespace

void check(const RandomOptions& options) {
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
}

RandomWorkload::RandomWorkload(const RandomOptions& options, NumpyRandom random, NumpyRandom* after) {
  check(options);
  const auto draw = [options](NumpyRandom& from, std::uint64_t length) {
    return from.length(length, options.random_range_ratio);
  };
  // The benchmark draws all input lengths before all output lengths: the generator in front of both.
  const NumpyRandom inputs = random;
  std::uint32_t shortest = std::numeric_limits<std::uint32_t>::max();
  for (std::uint64_t i = 0; i < options.num_prompts; ++i)
    shortest = std::min(shortest, draw(random, options.random_input_len));
  const NumpyRandom outputs = random;
  if (after != nullptr) {
    for (std::uint64_t i = 0; i < options.num_prompts; ++i) draw(random, options.random_output_len);
    *after = random;
  }
  outline_.name = outline_.format = "random";
  outline_.requests = options.num_prompts;
  outline_.shortest_prompt = shortest;
  outline_.without_accept_lens = 0;
  read_ = [=] {
    return [=, read = std::uint64_t{0}, next_id = kvcache::TokenId{0}, inputs = inputs,
            outputs = outputs]() mutable -> std::shared_ptr<const WorkloadRequest> {
      if (read == options.num_prompts) return nullptr;
      ++read;
      auto request = std::make_shared<WorkloadRequest>();
      const std::uint32_t length = draw(inputs, options.random_input_len);
      request->prompt.append({next_id, length});
      request->max_new_tokens = draw(outputs, options.random_output_len);
      next_id += length;
      return request;
    };
  };
}

}  // namespace tpsim::scheduler
