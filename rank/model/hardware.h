// Hardware profiles: from the catalogue, or from a file of the user's own in the same JSON form.
#pragma once

#include <string>
#include <vector>

#include "proto/hardware.pb.h"

namespace tpsim::rank {

// `hardware`: a catalogue name ("h200-sxm") or the path of a .json file with a HardwareProfile. Throws
// UserError naming --hardware, or the file.
proto::HardwareProfile load_hardware(const std::string& hardware);
std::vector<std::string> hardware_catalogue();

}  // namespace tpsim::rank
