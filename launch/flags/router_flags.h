// Several replicas, and which of them a request is sent to: SGLang's router (sglang_router.launch_server,
// router_args.py of 0.3.2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/cli/flag_set.h"
#include "scheduler/router/router.h"

namespace tpsim::launch {

struct RouterArgs {
  std::string fleet;  // of --fleet: the file of unequal servers; empty: none
  std::optional<scheduler::RouterPolicy> policy;
  std::optional<double> cache_threshold;
  std::optional<std::uint32_t> balance_abs_threshold;
  std::optional<double> balance_rel_threshold;
  std::optional<std::uint32_t> eviction_interval_secs;
  std::optional<std::uint64_t> max_tree_size;  // characters
  std::optional<scheduler::AssignmentMode> assignment_mode;
  std::optional<std::uint32_t> max_idle_secs;
  std::optional<std::uint32_t> bucket_adjust_interval_secs;
  // What it lets through.
  std::optional<std::uint32_t> max_concurrent_requests;  // none: everything
  std::optional<std::uint32_t> rate_limit_tokens_per_second, queue_size, queue_timeout_secs;

  // The first of its flags that was given; empty: there is no router.
  std::string_view given() const;
};

// Reads a policy of SGLang's router into `target`, which must outlive the flags; bucket is one of prefill
// servers.
FlagSet::ReadValue router_policy(std::optional<scheduler::RouterPolicy>& target, bool of_prefill = false);

// `prefix`: between the dashes and the router's own name of a flag, as sglang_router.launch_server has it.
void declare_router(FlagSet& flags, RouterArgs& args, const std::string& prefix = "router-");

// Of run and compare.
void declare_fleet(FlagSet& flags, RouterArgs& args);

std::string_view to_string(scheduler::RouterPolicy policy);
std::string_view to_string(scheduler::AssignmentMode mode);

}  // namespace tpsim::launch
