#include "scheduler/disaggregation/kv_link.h"

#include <algorithm>

namespace tpsim::scheduler {

double KvLinks::send(std::size_t from, std::size_t to, double time, std::uint32_t tokens,
                     std::uint32_t runs) {
  const double posted =
      time + config_.chunk_seconds + config_.run_seconds * (config_.token_runs ? tokens : runs);
  const double done = std::max({posted, out_[from], in_[to]}) + config_.token_seconds * tokens;
  return out_[from] = in_[to] = done;
}

void KvLinks::restart_clock() {
  std::ranges::fill(out_, 0);
  std::ranges::fill(in_, 0);
}

}  // namespace tpsim::scheduler
