#include "scheduler/req.h"

#include <cstddef>

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
  if (named.empty()) {
    tokens.append({output_base + spelled_output, all - spelled_output});
  } else {
    std::uint32_t position = 0;
    for (const kvcache::TokenRun& run : named.runs()) {
      const std::uint32_t end = position + run.length;
      if (end > spelled_output && position < all) {
        const std::uint32_t from = position < spelled_output ? spelled_output - position : 0;
        const std::uint32_t to = end > all ? all - position : run.length;
        tokens.append({run.first + from, to - from});
      }
      position = end;
    }
    // A trace may name fewer tokens than are generated: the rest is invented.
    if (position < all) {
      const std::uint32_t from = position > spelled_output ? position : spelled_output;
      tokens.append({output_base + from, all - from});
    }
  }
  spelled_output = all;
}

}  // namespace tpsim::scheduler
