// Models by name: the catalogue's own, their Hugging Face ids, and releases that differ from one of the
// catalogue in a few keys of their config.json.
#pragma once

#include <optional>
#include <string>

namespace tpsim::rank {

// "meta-llama/Llama-3.1-70B-Instruct" → "llama-3.1-70b". Only the publishers' own names, so that a path that
// does not exist is not taken for a model of the catalogue, and only those whose config.json is the
// catalogue's: of Mistral 7B that is v0.3.
std::string catalogue_key(const std::string& name);

// The config.json of a key, as JSON text; none where it is unknown. Of Qwen's models from the third on there
// are checkpoints in fp8 blocks, too, named so at their end.
std::optional<std::string> catalogue_config(const std::string& key);

}  // namespace tpsim::rank
