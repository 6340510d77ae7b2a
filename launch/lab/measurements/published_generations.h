// Published figures of diffusion pipelines: CSV with a row a figure (../shared/data/diffusion/published.csv),
// of SGLang's CI, of other engines and of papers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {

// Cells as they stand there, in words.
struct PublishedGeneration {
  std::string file;  // FILE:LINE
  std::string id, source, where, model, resolution, frames, steps, guidance, dtype, gpu, parallel, backend,
      backend_settings, caching, compile, timed, value_other, baseline, notes;
  std::uint32_t num_gpus = 1;
  std::optional<double> seconds, peak_gib, speedup;
  bool solid = false;  // shape, GPU and settings are known
};

// Whether the first filled line is the header of such a file. Throws UserError where it cannot be read.
bool holds_published_generations(const std::filesystem::path& path);
// Throws UserError "FILE:LINE: …" for a cell that is not what its column holds.
std::vector<PublishedGeneration> read_published_generations(scheduler::TraceInput& input);

}  // namespace tpsim::launch
