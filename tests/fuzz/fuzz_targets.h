// Everything that reads bytes from outside, as functions of bytes alone.
//
// A target returns for any input: what its parser refuses with UserError is fine, any other exception, a
// failed check or a sanitizer's report is a defect. To add a parser: add a row to a *_targets.cc, its library
// to CMakeLists.txt, and a folder of small examples under corpus/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::fuzz {

struct FuzzTarget {
  std::string_view name;  // also the folder under corpus/
  void (*run)(std::string_view bytes);
};

// Trace files: every format by name, and by detection.
std::span<const FuzzTarget> trace_targets();
// Safetensors files, their headers alone, and the index of a checkpoint.
std::span<const FuzzTarget> weights_targets();
// config.json and hardware profiles; what they describe is priced, too.
std::span<const FuzzTarget> model_targets();
// The prompts of `tpsim generate`.
std::span<const FuzzTarget> prompt_targets();
// Files of measurements, and what lies beside them.
std::span<const FuzzTarget> measurement_targets();
// Requests of live clients, as bytes of HTTP and as JSON.
std::span<const FuzzTarget> serve_targets();
// Files of --fleet.
std::span<const FuzzTarget> fleet_targets();
// --attention-backend-config of diffusion pipelines, as text and as a file, and masks of sliding tile
// attention.
std::span<const FuzzTarget> diffusion_targets();
// Files of --checkpoint, and the state in them.
std::span<const FuzzTarget> checkpoint_targets();

}  // namespace tpsim::fuzz
