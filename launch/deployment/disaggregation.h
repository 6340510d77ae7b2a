// Prefill and decode on servers of their own: how many of each, what their schedulers spend on each other,
// and the link that KV takes.
#pragma once

#include <cstdint>
#include <memory>

#include "scheduler/disaggregation/config.h"
#include "scheduler/router/router.h"

namespace tpsim::launch {

struct Deployment;

// Of the deployment that prefills.
struct Disaggregation {
  std::uint32_t prefill = 0, decode = 0;          // servers
  std::shared_ptr<const Deployment> decode_side;  // null: servers do both
  scheduler::KvLinkConfig link;
  scheduler::RouterConfig decode_router;
};

}  // namespace tpsim::launch
