// Random requests, whose prompts begin as others' do.
#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Mostly the beginning of an earlier request and its answer, then tokens from `fresh` on, which are nobody's
// yet; now and then more than a pool of `capacity` tokens holds.
inline void draw_prompt(std::mt19937_64& random, std::span<const WorkloadRequest> before,
                        std::uint64_t capacity, kvcache::TokenId& fresh, WorkloadRequest& r) {
  if (!before.empty() && random() % 3 != 0) {
    const WorkloadRequest& earlier = before[random() % before.size()];
    r.prompt = earlier.prompt;
    r.prompt.append(earlier.output);
    r.prompt.truncate(random() % (r.prompt.size() + 1));
  }
  const auto length =
      static_cast<std::uint32_t>(1 + random() % (random() % 20 == 0 ? 2 * capacity : capacity / 5));
  r.prompt.append({fresh, length});
  fresh += length + 7;
}

// Of every second one, what the answer is; r.max_new_tokens is known.
inline void draw_answer(std::mt19937_64& random, kvcache::TokenId& fresh, WorkloadRequest& r) {
  if (random() % 2 != 0) return;
  r.sampling.ignore_eos = random() % 2 == 0;
  r.output.append({fresh, static_cast<std::uint32_t>(1 + random() % r.max_new_tokens)});
  fresh += r.max_new_tokens + 3;
}

}  // namespace tpsim::scheduler
