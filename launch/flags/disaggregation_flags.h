// Prefill and decode on servers of their own: how many of each, and the link between them. The names are
// those of SGLang's launch_server, and of sglang_router.launch_router where it is the router's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/cli/flag_set.h"
#include "scheduler/router/router.h"

namespace tpsim::launch {

struct DisaggregationArgs {
  bool pd_disaggregation = false;
  std::uint32_t prefill = 1, decode = 1;  // servers
  std::string decode_args;                // flags of decode servers, over those of the command
  std::optional<scheduler::RouterPolicy> prefill_policy, decode_policy;
  std::uint32_t num_reserved_decode_tokens = 512;
  bool decode_enable_radix_cache = false;
  std::string transfer_backend = "nixl";
  std::string ib_device;
  std::string kv_link;                      // nvlink, pcie or network; empty: left open
  std::optional<double> kv_link_bandwidth;  // 10^9 bytes a second, of each GPU

  // The first of its flags that was given and needs --pd-disaggregation; empty: none.
  std::string given;
};

void declare_disaggregation(FlagSet& flags, DisaggregationArgs& args);
// Throws UserError where a flag of it was given without --pd-disaggregation.
void check_disaggregation(const DisaggregationArgs& args);

}  // namespace tpsim::launch
