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

class RandomReader : public RequestReader {
 public:
  RandomReader(const RandomOptions& options, NumpyRandom inputs, NumpyRandom outputs)
      : options_(options), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  std::shared_ptr<const WorkloadRequest> next() override {
    if (read_ == options_.num_prompts) return nullptr;
    ++read_;
    auto request = std::make_shared<WorkloadRequest>();
    const std::uint32_t length = inputs_.length(options_.random_input_len, options_.random_range_ratio);
    request->prompt.append({next_id_, length});
    request->max_new_tokens = outputs_.length(options_.random_output_len, options_.random_range_ratio);
    next_id_ += length;
    return request;
  }

 private:
  const RandomOptions& options_;
  NumpyRandom inputs_, outputs_;
  std::uint64_t read_ = 0;
  kvcache::TokenId next_id_ = 0;
};

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

RandomWorkload::RandomWorkload(const RandomOptions& options, NumpyRandom random)
    : options_(options), inputs_(random), outputs_(std::move(random)) {
  check(options);
  std::uint32_t shortest = std::numeric_limits<std::uint32_t>::max();
  for (std::uint64_t i = 0; i < options.num_prompts; ++i)
    shortest = std::min(shortest, outputs_.length(options.random_input_len, options.random_range_ratio));
  outline_.name = outline_.format = "random";
  outline_.requests = options.num_prompts;
  outline_.shortest_prompt = shortest;
  outline_.without_accept_lens = 0;
}

std::unique_ptr<RequestReader> RandomWorkload::read() const {
  return std::make_unique<RandomReader>(options_, inputs_, outputs_);
}

NumpyRandom RandomWorkload::random_after() const {
  NumpyRandom random = outputs_;
  for (std::uint64_t i = 0; i < options_.num_prompts; ++i)
    random.length(options_.random_output_len, options_.random_range_ratio);
  return random;
}

}  // namespace tpsim::scheduler
