// Heads that draft for a model of the catalogue, by name: the catalogue's own (rank/catalogue/drafts) and the
// Hugging Face ids under which such heads are published.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rank/config/model_config.h"

namespace tpsim::rank {

// "lmsys/EAGLE3-gpt-oss-120b-bf16" or "eagle3-gpt-oss-120b", in any case; none where it is not known.
std::optional<ModelConfig> catalogue_draft(const std::string& name);

// Ids of the heads for a target (a name of the catalogue), one for each; "" lists those of all targets.
std::vector<std::string> catalogue_drafts_for(const std::string& target);

}  // namespace tpsim::rank
