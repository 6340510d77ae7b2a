#include "scheduler/workload/benchmark_datasets.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/sampler.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {
namespace {

constexpr std::uint64_t kMaxPrompts = 100'000'000;

void check(const char* flag, std::uint64_t value, std::uint64_t max) {
  if (value == 0 || value > max)
    throw_user_error("{} {}: must be a whole number from 1 to {}", flag, value, max);
}

void check(const SharedPrefixOptions& options) {
  check("--gsp-num-groups", options.num_groups, kMaxPrompts);
  check("--gsp-prompts-per-group", options.prompts_per_group, kMaxPrompts / options.num_groups);
  check("--gsp-num-turns", options.num_turns, kMaxPrompts / options.num_groups / options.prompts_per_group);
  check("--gsp-output-len", options.output_len, kMaxRequestTokens);
  // The last turn of a conversation has the longest prompt.
  const std::uint64_t most = kMaxRequestTokens / options.num_turns;
  check("--gsp-question-len", options.question_len, most);
  check("--gsp-system-prompt-len", options.system_prompt_len, kMaxRequestTokens);
  if (options.system_prompt_len + (options.question_len + options.output_len) * options.num_turns >
      kMaxRequestTokens) {
    throw_user_error("--gsp-system-prompt-len {}: prompts become longer than {} tokens, make it smaller",
                     options.system_prompt_len, kMaxRequestTokens);
  }
  if (!(options.range_ratio >= 0 && options.range_ratio <= 1))
    throw_user_error("--gsp-range-ratio {}: must be a number from 0 to 1", options.range_ratio);
  if (options.zipf_alpha && !(*options.zipf_alpha > 0 && *options.zipf_alpha <= 1000))
    throw_user_error("--gsp-zipf-alpha {}: must be a number more than 0 and at most 1000",
                     *options.zipf_alpha);
}

// The group of each prompt, before the shuffle.
std::vector<std::uint32_t> assign_groups(const SharedPrefixOptions& options) {
  std::vector<std::uint32_t> groups(options.num_groups * options.prompts_per_group);
  if (!options.zipf_alpha) {
    for (std::size_t i = 0; i < groups.size(); ++i)
      groups[i] = static_cast<std::uint32_t>(i / options.prompts_per_group);
    return groups;
  }
  std::vector<double> cumulative(options.num_groups);
  double sum = 0;
  for (std::size_t rank = 1; rank <= cumulative.size(); ++rank) {
    const double exponent = *options.zipf_alpha * portable_log(static_cast<double>(rank));
    sum += exponent > 600 ? 0 : portable_exp(-exponent);
    cumulative[rank - 1] = sum;
  }
  NumpyGenerator random(options.seed);
  for (std::uint32_t& group : groups) {
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end() - 1, random.uniform() * sum);
    group = static_cast<std::uint32_t>(found - cumulative.begin());
  }
  return groups;
}

std::uint64_t total(const std::vector<std::uint32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
}

}  // namespace

Workload make_shared_prefix_workload(const SharedPrefixOptions& options) {
  check(options);
  const std::uint64_t conversations = options.num_groups * options.prompts_per_group;
  NumpyRandom numpy(options.seed);
  const auto draw = [&](std::uint64_t length, std::uint64_t count) {
    return numpy.lengths(length, options.range_ratio, count);
  };
  const std::vector<std::uint32_t> system_lens = draw(options.system_prompt_len, options.num_groups);
  const std::vector<std::uint32_t> question_lens =
      draw(options.question_len, conversations * options.num_turns);
  const std::vector<std::uint32_t> output_lens = draw(options.output_len, conversations);
  const std::vector<std::uint32_t> groups = assign_groups(options);
  std::vector<std::uint32_t> order(conversations);
  std::iota(order.begin(), order.end(), 0U);
  if (!options.ordered) {
    PythonRandom python(options.seed);
    python.skip(total(system_lens) + total(question_lens));  // it has drawn every token before
    python.shuffle(order);
  }

  kvcache::TokenId next_id = 0;
  const auto take_ids = [&next_id](std::uint32_t length) {
    const kvcache::TokenRun run{next_id, length};
    next_id += length;
    if (next_id > kGeneratedTokenBase)
      throw_user_error("--gsp-num-groups: the prompts have more than 2^48 tokens together, make it smaller");
    return run;
  };
  std::vector<kvcache::TokenRun> system_prompts;
  system_prompts.reserve(system_lens.size());
  for (const std::uint32_t length : system_lens) system_prompts.push_back(take_ids(length));

  Workload workload;
  workload.name = "generated-shared-prefix";
  workload.format = workload.name;
  workload.requests.reserve(conversations * options.num_turns);
  for (const std::uint32_t slot : order) {
    kvcache::TokenSequence history;
    history.append(system_prompts[groups[slot]]);
    for (std::uint64_t turn = 0; turn < options.num_turns; ++turn) {
      history.append(take_ids(question_lens[slot * options.num_turns + turn]));
      WorkloadRequest request;
      request.prompt = history;
      request.max_new_tokens = output_lens[slot];
      if (options.num_turns > 1) {
        request.session = static_cast<std::uint32_t>(workload.requests.size() / options.num_turns + 1);
        if (turn > 0) request.think_time = 0;
        const kvcache::TokenRun answer = take_ids(output_lens[slot]);
        request.output.append(answer);
        history.append(answer);
      }
      workload.requests.push_back(std::move(request));
    }
  }
  return workload;
}

void sample_sharegpt(Workload& workload, std::uint64_t num_prompts, std::uint32_t seed) {
  PythonRandom(seed).shuffle(workload.requests);
  std::erase_if(workload.requests, [](const WorkloadRequest& request) {
    return request.prompt.size() < 2 || request.max_new_tokens < 2;
  });
  if (workload.requests.empty())
    throw_user_error("{}: no request has two prompt tokens and two output tokens", workload.name);
  if (workload.requests.size() > num_prompts) workload.requests.resize(num_prompts);
}

}  // namespace tpsim::scheduler
