#include "scheduler/req.h"

#include <algorithm>

namespace tpsim::scheduler {

void Req::spell_out() {
  const std::uint32_t all = output_len + accepted_behind_end;
  if (spelled_output == all) return;
  if (!output_ids.empty()) {
    for (; spelled_output < output_len; ++spelled_output) tokens.append({output_ids[spelled_output], 1});
    for (; spelled_output < all; ++spelled_output)
      tokens.append({ids_behind_end[spelled_output - output_len], 1});
    return;
  }
  const kvcache::TokenSequence& named = source->output;
  named.for_each_run(spelled_output, all, [this](const kvcache::TokenRun& run) { tokens.append(run); });
  // A trace may name fewer tokens than are generated, or none: the rest is invented.
  if (named.size() < all) {
    const std::uint32_t from = std::max(spelled_output, static_cast<std::uint32_t>(named.size()));
    tokens.append({output_base + from, all - from});
  }
  spelled_output = all;
}

Req unserved(const RequestSource::Sent& sent) {
  Req req;
  req.id = sent.id;
  req.source = sent.request;
  req.arrival_time = sent.time;
  req.input_len = static_cast<std::uint32_t>(sent.request->prompt.size());
  req.max_new_tokens = sent.request->max_new_tokens;
  return req;
}

}  // namespace tpsim::scheduler
