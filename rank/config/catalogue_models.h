// Models by name: the catalogue's own, their Hugging Face ids, and releases that differ from one of the
// catalogue in a few keys of their config.json (rank/catalogue/releases); heads that draft for them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rank/config/model_config.h"

namespace tpsim::rank {

// "meta-llama/Llama-3.1-70B-Instruct" → "llama-3.1-70b". Only the publishers' own names, and those of a
// few who publish the same config.json again or a quantised form of it, so that a path that
// does not exist is not taken for a model of the catalogue, and only those whose config.json is the
// catalogue's: of Mistral 7B that is v0.3.
std::string catalogue_key(const std::string& name);

// The way back: the Hugging Face id that a name of the catalogue is launched by; `name` where none is known,
// or where it is none of the catalogue's own.
std::string hub_id(const std::string& name);

// The config.json of a key, as JSON text; none where it is unknown. Of Qwen's models from the third on there
// are checkpoints in fp8 blocks, too, named so at their end.
std::optional<std::string> catalogue_config(const std::string& key);

// A head that drafts for a model of the catalogue, by the catalogue's own name (rank/catalogue/drafts) or a
// Hugging Face id under which it is published: "lmsys/EAGLE3-gpt-oss-120b-bf16" or "eagle3-gpt-oss-120b", in
// any case; none where it is not known.
std::optional<ModelConfig> catalogue_draft(const std::string& name);

// Ids of the heads for a target (a name of the catalogue), one for each; "" lists those of all targets.
std::vector<std::string> catalogue_drafts_for(const std::string& target);

}  // namespace tpsim::rank
