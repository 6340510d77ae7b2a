// Replicas that die, slow down, come and go, and what the router before them does then. Flags of the router
// have SGLang's names (sglang_router 0.3.2, router_args.py); of the rest SGLang has none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launch/cli/flag_set.h"
#include "scheduler/elastic/config.h"

namespace tpsim::launch {

struct ElasticArgs {
  scheduler::ElasticConfig config;        // but for its seed and what scales
  scheduler::AutoscaleConfig autoscale;   // of --autoscale, or the rule of a fleet's; but for `initial`
  std::optional<double> startup_seconds;  // none: of weights and graphs
  std::string_view router_flag;           // the last of the router's that was given
  bool autoscale_target = false;          // given
  bool disable_retries = false;
  bool disable_circuit_breaker = false;
  bool disable_health_check = false;

  // A flag that makes replicas die, slow down, come or go; empty: none does.
  std::string_view given() const;
  // Flags of the router's that mean nothing for want of it; empty: none.
  std::string_view idle_router_flags() const;
};

// Of run and compare.
void declare_elastic(FlagSet& flags, ElasticArgs& args);

// "1..4": the least and the most. Throws UserError, with `what` before the value, for anything else.
std::pair<std::uint32_t, std::uint32_t> parse_replica_range(std::string_view what, const std::string& value);

// Throws UserError for flags that mean nothing without others: `range`, which says how many replicas there
// may be, is given where the number of replicas `scales`; `levels`: so is --slo.
void check_autoscale(const ElasticArgs& args, bool scales, std::string_view range, bool levels);
// The same of what fails and comes back.
void check_elastic_args(const ElasticArgs& args);

}  // namespace tpsim::launch
