// What numeric execution makes of prompts, per prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/simulation/prompts.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

struct Output {
  bool completed = false;
  std::uint32_t cached_tokens = 0;
  std::vector<std::uint32_t> token_ids;
  std::vector<float> prompt_logits;  // [vocabulary]; empty where not asked for
};

// Keeps the outputs by their position in the workload.
class Outputs : public scheduler::RunObserver {
 public:
  explicit Outputs(std::size_t prompts) : outputs_(prompts) {}
  void on_request(const scheduler::RequestRecord& record) override;
  void on_step(const scheduler::StepRecord&) override {}
  bool on_progress(const scheduler::Progress&) override { return true; }

  const std::vector<Output>& all() const { return outputs_; }

 private:
  std::vector<Output> outputs_;
};

scheduler::WorkloadRequest request_of(const Prompt& prompt, std::uint32_t max_new_tokens,
                                      const scheduler::SamplingParams& sampling);

}  // namespace tpsim::launch
