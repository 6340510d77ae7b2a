#include "launch/lab/served/ngram_answers.h"

#include <algorithm>
#include <cmath>

namespace tpsim::launch {
namespace {

constexpr double kAll = 0.95;  // of the drafts: what counts as all
constexpr double kGoldenRatio = 0.618033988749895;
constexpr std::uint32_t kMostAlone = 4096;  // steps

}  // namespace

std::optional<NgramAnswers> NgramAnswers::of(const std::vector<std::pair<std::uint32_t, double>>& means,
                                             std::uint32_t drafts) {
  double lost = 0;
  for (std::size_t i = 0; i < means.size(); ++i) {
    if (means[i].second >= kAll * drafts) return NgramAnswers(lost, drafts);
    if (i + 1 < means.size()) lost += (drafts - means[i].second) * (means[i + 1].first - means[i].first);
  }
  return std::nullopt;
}

NgramAnswers::NgramAnswers(double lost, std::uint32_t drafts) : drafts_(drafts) {
  for (std::uint32_t before = 1, chain = 3; chain < drafts; chain += 2 * std::exchange(before, chain))
    lost -= drafts - chain;
  const double alone = lost / std::max(1U, drafts - 1);  // steps that keep one token, in the mean
  goes_on_ = alone > 1 ? 1 - 1 / alone : 0;
}

std::vector<std::uint32_t> NgramAnswers::of_request(std::size_t request, std::uint32_t tokens) const {
  // Shares of few requests come out whole: multiples of the golden ratio spread evenly.
  const double place = std::fmod(0.5 + static_cast<double>(request) * kGoldenRatio, 1.0);
  std::uint32_t alone = 1;
  for (double later = goes_on_; place < later && alone < kMostAlone; later *= goes_on_) ++alone;
  std::vector<std::uint32_t> lens;
  std::uint32_t before = 1, chain = 1, kept = 0;
  while (kept < tokens) {
    if (lens.size() >= alone) before = std::exchange(chain, std::min(chain + 2 * before, drafts_));
    lens.push_back(chain);
    kept += chain;
  }
  return lens;
}

}  // namespace tpsim::launch
