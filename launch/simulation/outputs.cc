#include "launch/simulation/outputs.h"

namespace tpsim::launch {

void Outputs::on_request(const scheduler::RequestRecord& record) {
  Output& output = outputs_.at(record.id);
  output.completed = record.state == scheduler::RequestState::kCompleted;
  output.cached_tokens = record.cached_tokens;
  output.token_ids.assign(record.output_ids.begin(), record.output_ids.end());
  output.prompt_logits.assign(record.prompt_logits.begin(), record.prompt_logits.end());
}

scheduler::WorkloadRequest request_of(const Prompt& prompt, std::uint32_t max_new_tokens,
                                      const scheduler::SamplingParams& sampling) {
  scheduler::WorkloadRequest request;
  for (const std::uint32_t id : prompt.ids) request.prompt.append({id, 1});
  request.max_new_tokens = max_new_tokens;
  request.sampling = sampling;
  request.images = prompt.images;
  return request;
}

}  // namespace tpsim::launch
