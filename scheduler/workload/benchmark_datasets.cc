#include "scheduler/workload/benchmark_datasets.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/sampler.h"

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

class SharedPrefixWorkload::Reader : public RequestReader {
 public:
  explicit Reader(const SharedPrefixWorkload& all) : all_(all), next_id_(all.first_id_) {}

  std::shared_ptr<const WorkloadRequest> next() override {
    if (turn_ == all_.options_.num_turns) {
      ++conversation_;
      turn_ = 0;
    }
    if (conversation_ == all_.order_.size()) return nullptr;
    const std::uint32_t slot = all_.order_[conversation_];
    if (turn_ == 0) {
      history_.clear();
      history_.append(all_.system_prompts_[all_.groups_[slot]]);
    }
    history_.append(take_ids(all_.question_lens_[slot * all_.options_.num_turns + turn_]));
    auto request = std::make_shared<WorkloadRequest>();
    request->prompt = history_;
    request->max_new_tokens = all_.output_lens_[slot];
    if (all_.options_.num_turns > 1) {
      request->session = static_cast<std::uint32_t>(conversation_ + 1);
      if (turn_ > 0) request->think_time = 0;
      const kvcache::TokenRun answer = take_ids(all_.output_lens_[slot]);
      request->output.append(answer);
      history_.append(answer);
    }
    ++turn_;
    return request;
  }

 private:
  kvcache::TokenRun take_ids(std::uint32_t length) {
    const kvcache::TokenRun run{next_id_, length};
    next_id_ += length;
    return run;
  }

  const SharedPrefixWorkload& all_;
  std::size_t conversation_ = 0;  // position in order_
  std::uint64_t turn_ = 0;
  kvcache::TokenSequence history_;
  kvcache::TokenId next_id_;
};

SharedPrefixWorkload::SharedPrefixWorkload(const SharedPrefixOptions& options) : options_(options) {
  check(options);
  const std::uint64_t conversations = options.num_groups * options.prompts_per_group;
  NumpyRandom numpy(options.seed);
  const auto draw = [&](std::uint64_t length, std::uint64_t count) {
    return numpy.lengths(length, options.range_ratio, count);
  };
  const std::vector<std::uint32_t> system_lens = draw(options.system_prompt_len, options.num_groups);
  question_lens_ = draw(options.question_len, conversations * options.num_turns);
  output_lens_ = draw(options.output_len, conversations);
  groups_ = assign_groups(options);
  order_.resize(conversations);
  std::iota(order_.begin(), order_.end(), 0U);
  if (!options.ordered) {
    PythonRandom python(options.seed);
    python.skip(total(system_lens) + total(question_lens_));  // it has drawn every token before
    python.shuffle(order_);
  }
  const std::uint64_t answers = options.num_turns > 1 ? total(output_lens_) * options.num_turns : 0;
  if (total(system_lens) + total(question_lens_) + answers > kGeneratedTokenBase)
    throw_user_error("--gsp-num-groups: the prompts have more than 2^48 tokens together, make it smaller");
  system_prompts_.reserve(system_lens.size());
  for (const std::uint32_t length : system_lens) {
    system_prompts_.push_back({first_id_, length});
    first_id_ += length;
  }
  OutlineBuilder builder;
  Reader reader(*this);
  while (const std::shared_ptr<const WorkloadRequest> request = reader.next()) builder.add(*request);
  outline_ = builder.finish();
  outline_.name = outline_.format = "generated-shared-prefix";
}

std::unique_ptr<RequestReader> SharedPrefixWorkload::read() const { return std::make_unique<Reader>(*this); }

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
