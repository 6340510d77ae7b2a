// How many drafts are right where nobody says: what was published of the model, or of others with such a
// head.
#pragma once

#include <optional>
#include <string>

#include "rank/llm/draft_model.h"

namespace tpsim::launch {

struct PublishedAcceptance {
  double rate = 0;     // of a guess, where all before it are right
  std::string of;      // a sentence's part: "as DeepSeek-R1 with random prompts"
  std::string source;  // who published it
};

// By rank/catalogue/acceptance: chains of drafts. The row of the architecture; where there is none, the
// middle one of heads of that kind. None of a kind that nobody published.
std::optional<PublishedAcceptance> published_acceptance(const std::string& architecture,
                                                        rank::DraftKind kind);

}  // namespace tpsim::launch
