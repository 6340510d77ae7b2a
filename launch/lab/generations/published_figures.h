// Published figures of generations, beside what tpsim predicts of them.
#pragma once

#include <filesystem>

#include "proto/validation.pb.h"

namespace tpsim::launch {

// Adds a row of each figure with `seconds`, `speedup` and `peak_memory_gib`, as far as the file has them, to
// `validation`, or says in its `not_asked` why not. Throws UserError "FILE:LINE: …" for a file that is not as
// launch/lab/measurements/published_generations.h says.
void predict_published_figures(const std::filesystem::path& path, proto::Validation& validation);

}  // namespace tpsim::launch
