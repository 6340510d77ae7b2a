// Hosts: the constants of a machine that was measured, read from JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/host.pb.h"

namespace tpsim::rank {

inline constexpr std::uint32_t kHostProfileVersion = 1;

// `where` names the text in errors. Every constant of the result is given, finite and not negative. Throws
// UserError.
proto::HostProfile parse_host(std::string_view text, const std::string& where);

}  // namespace tpsim::rank
