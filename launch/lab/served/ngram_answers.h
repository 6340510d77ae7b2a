// What requests of a measured n-gram load keep of their steps, told from the mean that its batch log names.
//
// An n-gram cache offers nothing until an answer repeats itself, then longer chains from step to step: what a
// step keeps was 1 … 1, 3, 5, 11 and all, or all as soon as there are no more drafts (answers of dummy
// weights, SGLang 0.5.12, 4, 8 and 16 drafts; servers with other hosts kept the same of the same prompts).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tpsim::launch {

class NgramAnswers {
 public:
  // `means`: MeasuredLoad::accept_lens. `drafts`: the most tokens that a step keeps. None where even late
  // steps lose drafts: such answers do not only repeat.
  static std::optional<NgramAnswers> of(const std::vector<std::pair<std::uint32_t, double>>& means,
                                        std::uint32_t drafts);

  // Tokens kept of each step of the load's request number `request`, until they are `tokens`.
  std::vector<std::uint32_t> of_request(std::size_t request, std::uint32_t tokens) const;

 private:
  // `lost`: drafts that a request loses, in the mean, against one that keeps all from its first step.
  NgramAnswers(double lost, std::uint32_t drafts);

  std::uint32_t drafts_;
  double goes_on_ = 0;  // chance that a step that kept one token is followed by another
};

}  // namespace tpsim::launch
