// What requests of a measured n-gram load keep of their steps, against what its log said of the mean.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/lab/served/servable_load.h"

namespace tpsim::launch {
namespace {

constexpr std::uint32_t kTokens = 256;

std::vector<std::vector<std::uint32_t>> answers(const std::vector<std::pair<std::uint32_t, double>>& means,
                                                std::uint32_t drafts, std::uint32_t requests) {
  MeasuredLoad load;
  load.accept_lens = means;
  const ServableLoad servable(load, {"--model-path",
                                     "llama-3.1-8b",
                                     "--hardware",
                                     "h200-sxm",
                                     "--speculative-algorithm",
                                     "NGRAM",
                                     "--speculative-num-draft-tokens",
                                     std::to_string(drafts),
                                     "--speculative-accept-rates",
                                     "trace",
                                     "--dataset-name",
                                     "random",
                                     "--random-input-len",
                                     "64",
                                     "--random-output-len",
                                     std::to_string(kTokens),
                                     "--random-range-ratio",
                                     "1",
                                     "--num-prompts",
                                     std::to_string(requests)});
  std::vector<std::vector<std::uint32_t>> kept;
  const scheduler::RequestReader next = servable.workload().read();
  while (const auto request = next()) kept.push_back(request->accept_lens);
  return kept;
}

double mean_at(const std::vector<std::vector<std::uint32_t>>& kept, std::size_t begin, std::size_t end) {
  double sum = 0, count = 0;
  for (const std::vector<std::uint32_t>& request : kept) {
    for (std::size_t step = begin; step < std::min(end, request.size()); ++step) {
      sum += request[step];
      ++count;
    }
  }
  return sum / count;
}

// Alone for a while, then chains that grow as an n-gram cache's do, then every draft.
TEST(NgramAnswers, RepeatThemselvesFromSomeStepOn) {
  for (const std::uint32_t drafts : {4U, 8U, 16U}) {
    const auto kept = answers({{0, 1.5}, {4, 0.5 * drafts}, {12, drafts}}, drafts, 48);
    ASSERT_EQ(kept.size(), 48U);
    for (const std::vector<std::uint32_t>& request : kept) {
      std::uint32_t tokens = 0, before = 1;
      std::size_t step = 0;
      for (; step < request.size() && request[step] == 1; ++step) ++tokens;
      ASSERT_GE(step, 1U);
      for (std::uint32_t last = 1; step < request.size(); ++step) {
        EXPECT_EQ(request[step], std::min(last + 2 * before, drafts)) << drafts << " " << step;
        before = last;
        last = request[step];
        tokens += last;
      }
      EXPECT_GE(tokens, kTokens);
      EXPECT_LT(tokens, kTokens + drafts);
    }
  }
}

// What a request loses of the drafts, over all its steps, is what the log says, however many requests tell.
TEST(NgramAnswers, LoseWhatTheLogSays) {
  const double logged = 4 * (8 - 1.2) + 4 * (8 - 3.5) + 4 * (8 - 6.5);
  for (const std::uint32_t requests : {16U, 48U, 400U}) {
    double lost = 0;
    for (const std::vector<std::uint32_t>& request :
         answers({{0, 1.2}, {4, 3.5}, {8, 6.5}, {12, 7.9}}, 8, requests))
      for (const std::uint32_t length : request) lost += 8.0 - length;
    EXPECT_NEAR(lost / requests, logged, 0.1 * logged) << requests;
  }
}

// Steps that lose drafts to the end: not answers that only repeat themselves.
TEST(NgramAnswers, KeepAllOrOneWhereLateStepsLoseDrafts) {
  const auto kept = answers({{0, 4.5}}, 8, 64);
  for (const std::vector<std::uint32_t>& request : kept)
    for (const std::uint32_t length : request) EXPECT_TRUE(length == 1 || length == 8) << length;
  EXPECT_NEAR(mean_at(kept, 0, 1000), 4.5, 0.3);
}

}  // namespace
}  // namespace tpsim::launch
