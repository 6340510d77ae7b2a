// Between a client and the scheduler, on a host that was measured.
#pragma once

#include <string_view>

#include "proto/host.pb.h"
#include "scheduler/config.h"

namespace tpsim::launch {

// Of --front-end `kind`: "ids", "text" or "kit", the client of shared/measure.
scheduler::FrontEndConfig front_end_of(const proto::HostProfile& host, std::string_view kind);
// The part of it that is the client's.
scheduler::ClientShare client_share_of(const proto::HostProfile& host);

}  // namespace tpsim::launch
