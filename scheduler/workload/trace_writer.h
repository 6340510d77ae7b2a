// Writes a Workload as a trace file, in formats that hold all of it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// "tpsim" (any workload), "mooncake" (prompts of whole 512-token blocks, whole milliseconds) and "azure"
// (prompts that share nothing).
std::vector<std::string> writable_format_names();

// The text of `workload` in `format`: read_trace gives an equal workload (in "azure" up to the names of ids).
// Throws UserError that names the request, counted from 1, that the format cannot hold.
std::string format_trace(const Workload& workload, const std::string& format);

// Writes `text` to `path` as an OutputFile (proto/base/output_file.h). Returns whether that is standard
// output. Throws UserError where it cannot be written.
bool write_trace_file(const std::filesystem::path& path, const std::string& text);

}  // namespace tpsim::scheduler
