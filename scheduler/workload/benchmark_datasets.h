// What SGLang's serving benchmark makes of its datasets `generated-shared-prefix` and `sharegpt`. The rules
// are those of sglang/benchmark/datasets (0.5.23), and so are, for equal seeds, all lengths and their order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "scheduler/workload/streamed_workload.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Field x is the flag --gsp-x; the defaults are the benchmark's.
struct SharedPrefixOptions {
  std::uint64_t num_groups = 64;  // system prompts
  std::uint64_t prompts_per_group = 16;
  std::uint64_t system_prompt_len = 2048;  // tokens
  std::uint64_t question_len = 128;
  std::uint64_t output_len = 256;
  double range_ratio = 1;  // lengths are uniform from this share of the length up to the length
  std::uint64_t num_turns = 1;
  bool ordered = false;  // group after group; false: shuffled
  // Unset: every group gets prompts_per_group prompts. Set: the groups of all prompts are drawn, the k-th
  // group 1/k^zipf_alpha as often as the first.
  std::optional<double> zipf_alpha = {};
  std::uint32_t seed = 1;
};

// Prompts of a system prompt and a question, all at 0; lengths are exact, as the benchmark's are with
// --tokenize-prompt. With several turns each is a conversation without think time, whose later prompts repeat
// what was said and answered. Lengths and order are held, four bytes for each question and twelve for each
// conversation; requests are made as they are read.
class SharedPrefixWorkload : public StreamedWorkload {
 public:
  // Throws UserError that names the flag that is out of range.
  explicit SharedPrefixWorkload(const SharedPrefixOptions& options);
};

// Of a dataset of lengths: shuffled, without requests of fewer than two prompt or output tokens, the first
// num_prompts. Throws UserError where nothing is left.
void sample_sharegpt(Workload& workload, std::uint64_t num_prompts, std::uint32_t seed);

}  // namespace tpsim::scheduler
