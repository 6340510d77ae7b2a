// A hardware profile as the JSON text that --hardware takes.
#pragma once

#include <string>

#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

// Every number to its last bit; lists of numbers on one line.
std::string profile_text(const proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
