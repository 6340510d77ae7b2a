// What every live server takes: where it listens, how fast its clock passes, what clients may cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/cli/flag_set.h"
#include "launch/serve/wire/wire_config.h"

namespace tpsim::launch {

struct LiveArgs {
  WireConfig wire;
  std::string served_model_name;  // empty: --model-path
  double speedup = 1;
  std::uint32_t max_open_requests = 65536;
  std::optional<double> drain_timeout;  // seconds; none: until all is answered
};

void declare_live(FlagSet& flags, LiveArgs& args);

}  // namespace tpsim::launch
