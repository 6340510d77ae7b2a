// Measured forward passes of diffusion pipelines' components, beside what tpsim predicts of them.
#pragma once

#include <filesystem>
#include <string>

#include "proto/validation.pb.h"

namespace tpsim::launch {

// Whether a file's name says that it holds such rows (NAME.json). Others hold loads.
bool holds_diffusion_passes(const std::filesystem::path& path);

// Adds a row of each pass with `ms` and `attention_ms` to `validation`, or says in its `not_asked` why not.
// The file is a JSON list of objects: "model", "case" ("480p81": pixels and frames, "1024": a square; "
// batch2"), "ms", and of transformers "backend" with "mode" (one, ulysses2, ring2, cfg2 …) or Diffusers'
// "sdpa" (flash, cudnn) and "attention_ms"; of other components "what" and "dtype". `hardware`: that all were
// measured on. Throws UserError "--measurements FILE: …" for another file.
void predict_diffusion_passes(const std::filesystem::path& path, const std::string& hardware,
                              proto::Validation& validation);

}  // namespace tpsim::launch
