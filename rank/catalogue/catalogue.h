// The catalogue that comes with tpsim: JSON texts of models and GPUs, built into the program.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::rank::catalogue {

// kind: "models", "drafts" (heads that draft for one of the models), "hardware", "hosts", "pipelines"
// (diffusion pipelines), "ranges" (by GPU, how large calls were measured), "residuals" (how far off measured
// loads were), "acceptance" (published lengths of accepted drafts), or "attention/GPU": names are then
// backends, and texts the coefficients that were fitted to theirs on that GPU.
std::optional<std::string_view> find(std::string_view kind, std::string_view name);
// Names of a kind, sorted.
std::vector<std::string> names(std::string_view kind);

}  // namespace tpsim::rank::catalogue
