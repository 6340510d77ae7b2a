// Hardware profiles: from the catalogue, or from a file of the user's own in the same JSON form.
#pragma once

#include <string>
#include <vector>

#include "proto/hardware.pb.h"

namespace tpsim::rank {

// `hardware`: a catalogue name ("h200-sxm"), the path of a .json file with a HardwareProfile, or a name that
// vendors give a GPU of the catalogue ("NVIDIA H200", "H200-SXM"). A file without attention classes takes
// those of the GPU of its name, where the catalogue has it. Throws UserError naming --hardware, or the file.
proto::HardwareProfile load_hardware(const std::string& hardware);
// A profile from JSON text; `where` names it in errors. Every constant of the result is finite and in a range
// in which prices are.
proto::HardwareProfile parse_hardware(const std::string& text, const std::string& where);
std::vector<std::string> hardware_catalogue();

}  // namespace tpsim::rank
