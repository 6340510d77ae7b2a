// What a user expects of every request: the --goodput of vLLM's serving benchmark.
#pragma once

#include <optional>

#include "scheduler/records.h"

namespace tpsim::scheduler {

// The longest that is good, milliseconds; empty: any.
struct ServiceLevels {
  std::optional<double> ttft_ms{};
  std::optional<double> tpot_ms{};
  std::optional<double> e2e_ms{};

  bool any() const { return ttft_ms || tpot_ms || e2e_ms; }

  // Whether a request was completed and within every level. A single token has no time per output token and
  // is within any.
  bool met_by(const RequestRecord& record) const {
    const auto within = [](double seconds, const std::optional<double>& ms) {
      return !ms || seconds * 1e3 <= *ms;
    };
    return record.state == RequestState::kCompleted && within(record.ttft(), ttft_ms) &&
           within(record.tpot(), tpot_ms) && within(record.e2e_latency(), e2e_ms);
  }
};

}  // namespace tpsim::scheduler
