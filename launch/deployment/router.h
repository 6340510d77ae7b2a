// Several replicas and what stands before them: how many, and who sends requests to which.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "scheduler/elastic/config.h"
#include "scheduler/router/router.h"

namespace tpsim::launch {

struct RouterChoice {
  std::uint32_t replicas = 1;
  scheduler::RouterConfig config;
  scheduler::ElasticConfig elastic;
  std::optional<double> startup_seconds;  // that a replica's start takes; none: launch/deployment/startup.h
  Notes notes, warnings;
};

// --dp-size without --enable-dp-attention: so many servers behind SGLang's router (--router-policy), or so
// many schedulers behind the controller of one server (--load-balance-method). Throws UserError for what
// replicas are not simulated with.
RouterChoice resolve_router(const ServerArgs& args);

// What the router's flags say, with `policy` where one is given; `seed`: of what it draws. Its clients see
// their first tokens at once: see kFirstTokenSeconds.
scheduler::RouterConfig router_config(const RouterArgs& args, std::uint32_t seed,
                                      const std::optional<scheduler::RouterPolicy>& policy);
scheduler::RouterConfig router_config(const ServerArgs& args,
                                      const std::optional<scheduler::RouterPolicy>& policy);

// The router hands the first piece of a stream on with later ones: first tokens of llama-3.1-8b on an H200
// came so much later than without it, the last ones did not (sglang_router 0.3.2;
// shared/data/fleet/README.md).
inline constexpr double kFirstTokenSeconds = 0.015;

// What the report says of it; of one replica nothing.
void write_router(const RouterChoice& router, Rows& rows);
void write_router(const scheduler::RouterConfig& router, Rows& rows);

}  // namespace tpsim::launch
