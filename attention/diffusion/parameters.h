// --attention-backend-config: a path to a JSON or YAML file, JSON, or k=v,k=v.
#pragma once

#include <span>
#include <string>

#include "attention/diffusion/backend.h"

namespace tpsim::attention {

inline constexpr std::string_view kDiffusionConfigFlag = "--attention-backend-config";

// What `text` says for a backend, defaults filled in; "": defaults alone. Throws UserError naming the flag
// for text that is none of the three, for keys that the backend does not read, values of another type or
// outside their range, and what is required and missing.
//
// Source: sglang.multimodal_gen 0.5.23 runtime/server_args/server_args.py (_parse_attention_backend_config),
// which passes unknown keys over in silence.
//
// `sharing`: backends that are compared under one text; keys that one of them reads are passed over by the
// others.
DiffusionParameters read_diffusion_parameters(const DiffusionBackend& backend, const std::string& text,
                                              std::span<const DiffusionBackend* const> sharing = {});
// The same of the text of a file at `path`, which ends with .json, .yaml or .yml.
DiffusionParameters parse_diffusion_parameters(const DiffusionBackend& backend, const std::string& text,
                                               const std::string& path);

}  // namespace tpsim::attention
