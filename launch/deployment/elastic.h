// Replicas that die, slow down, come and go, as flags say.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/deployment/subject.h"
#include "launch/flags/elastic_flags.h"
#include "launch/flags/server_args.h"
#include "scheduler/elastic/config.h"

namespace tpsim::launch {

// Of `replicas` behind `router`, some of which come and go; not enabled() where no flag asks.
// Throws UserError for replicas that are not there, and for what is not simulated with it.
scheduler::ElasticConfig resolve_elastic(const ServerArgs& args, const RouterArgs& router,
                                         std::uint32_t replicas,
                                         std::vector<scheduler::AutoscaleConfig> autoscale);

// What the report says of it.
void write_elastic(const scheduler::ElasticConfig& elastic, Rows& rows);

}  // namespace tpsim::launch
