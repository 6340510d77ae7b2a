#include <array>
#include <stdexcept>
#include <string>

#include "launch/fleet/fleet_file.h"
#include "proto/base/error.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

void read(std::string_view bytes) {
  try {
    const launch::FleetFile fleet = launch::parse_fleet(std::string(bytes), "fuzzed");
    if (fleet.groups.empty() || fleet.servers() == 0) throw std::logic_error("a fleet has a server");
    for (const launch::ServerGroup& group : fleet.groups)
      if (group.name.empty() || group.line == 0 || group.hardware.empty())
        throw std::logic_error("servers have a name, a line and a GPU");
  } catch (const UserError& error) {
    if (!std::string_view(error.what()).starts_with("fuzzed:"))
      throw std::logic_error("a complaint begins with the file's name");
  }
}

constexpr std::array<FuzzTarget, 1> kTargets = {{{"fleet", read}}};

}  // namespace

std::span<const FuzzTarget> fleet_targets() { return kTargets; }

}  // namespace tpsim::fuzz
