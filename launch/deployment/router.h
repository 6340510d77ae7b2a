// Several replicas and what stands before them: how many, and who sends requests to which.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "scheduler/router/router.h"

namespace tpsim::launch {

struct RouterChoice {
  std::uint32_t replicas = 1;
  scheduler::RouterConfig config;
  Notes notes;
};

// --dp-size without --enable-dp-attention: so many servers behind SGLang's router (--router-policy), or so
// many schedulers behind the controller of one server (--load-balance-method). Throws UserError for what
// replicas are not simulated with.
RouterChoice resolve_router(const ServerArgs& args);

// What --router-… say, with `policy` where one is given.
scheduler::RouterConfig router_config(const ServerArgs& args,
                                      const std::optional<scheduler::RouterPolicy>& policy);

// What the report says of it; of one replica nothing.
void write_router(const RouterChoice& router, Rows& rows);

}  // namespace tpsim::launch
