// Steps of speculative decoding with data-parallel attention: who has no request of its own runs the same
// passes as the others.
#include "rank/llm/speculative_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "attention/selection/registry.h"
#include "rank/cost/hardware.h"
#include "rank/llm/draft_model.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kDrafts = 4;

class DataParallelSteps : public ::testing::Test {
 protected:
  explicit DataParallelSteps(const char* model = "deepseek-v3") : target_(load_model_config(model)) {
    layout_.tp_size = layout_.dp_size = 4;
  }
  std::unique_ptr<ModeledForward> priced(const ModelConfig& model, const ParallelLayout& layout) const {
    auto backend = attention::create_attention_backend("fa3", profile_, 1);
    return std::make_unique<ModeledForward>(model, profile_, make_shard(model, layout, 0), std::move(backend),
                                            ModeledForward::Options{.cuda_graph_bs = {8, 16}});
  }
  SpeculativeForward make(bool alone) const {
    auto draft = std::make_unique<DraftModel>(load_draft_model("EAGLE", "", target_));
    ParallelLayout of_draft = layout_;
    if (alone) of_draft.tp_size = of_draft.dp_size = 1;
    const Shard shard = make_shard(draft->config, of_draft, 0);
    auto forward = priced(draft->config, of_draft);
    return SpeculativeForward(priced(target_, layout_), std::move(draft), std::move(forward), shard, profile_,
                              {.num_steps = 3, .num_draft_tokens = kDrafts, .drafts_alone = alone});
  }
  // Of ranks with so many requests each, that of the first.
  attention::ForwardMetadata verify(const std::vector<std::uint32_t>& requests, std::uint32_t bucket) {
    prefixes_.assign(requests.front(), 2000);
    lens_.assign(requests.front(), kDrafts);
    tokens_.clear();
    for (const std::uint32_t count : requests) tokens_.push_back(count * kDrafts);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = requests.front() == 0 ? proto::IDLE : proto::TARGET_VERIFY;
    metadata.extend_prefix_lens = prefixes_;
    metadata.extend_lens = lens_;
    metadata.global_num_tokens = metadata.global_num_tokens_for_logprob = tokens_;
    metadata.capture_bucket = bucket;
    return metadata;
  }

  ModelConfig target_;
  proto::HardwareProfile profile_ = load_hardware("h200-sxm");
  ParallelLayout layout_;
  std::vector<std::uint32_t> prefixes_, lens_, tokens_;
};

TEST_F(DataParallelSteps, IdleRanksRunTheSameGraphs) {
  SpeculativeForward model = make(false);
  const StepCost busy = model.forward(verify({5, 8, 0, 1}, 8));
  const StepCost idle = model.forward(verify({0, 8, 5, 1}, 8));
  EXPECT_GT(busy.attention, 0);
  EXPECT_EQ(idle.attention, 0);
  EXPECT_DOUBLE_EQ(idle.gemm, busy.gemm);
  EXPECT_DOUBLE_EQ(idle.collective, busy.collective);
  EXPECT_DOUBLE_EQ(idle.communicated_bytes, busy.communicated_bytes);
  EXPECT_GT(idle.draft_seconds, 0);
  EXPECT_GT(idle.draft_extend_seconds, 0);
  EXPECT_LT(idle.draft_seconds, busy.draft_seconds);
  // A captured step does not depend on how many of its places are taken.
  EXPECT_DOUBLE_EQ(model.forward(verify({8, 8, 8, 8}, 8)).gemm, busy.gemm);
  EXPECT_GT(model.forward(verify({5, 8, 0, 1}, 16)).gemm, busy.gemm);
}

// Without graphs all ranks pad to the longest: the same, again.
TEST_F(DataParallelSteps, IdleRanksPadEagerStepsAlike) {
  SpeculativeForward model = make(false);
  const StepCost busy = model.forward(verify({8, 8, 7, 0}, 0));
  const StepCost idle = model.forward(verify({0, 8, 8, 7}, 0));
  EXPECT_DOUBLE_EQ(idle.collective, busy.collective);
  EXPECT_GT(idle.gemm, 0.5 * busy.gemm);
  EXPECT_LE(idle.gemm, busy.gemm);
}

// Data parallelism of one is none.
TEST_F(DataParallelSteps, OneRankIsAPlainServer) {
  layout_.tp_size = layout_.dp_size = 1;
  SpeculativeForward model = make(false);
  attention::ForwardMetadata plain = verify({6}, 8);
  const StepCost with = model.forward(plain);
  plain.global_num_tokens = plain.global_num_tokens_for_logprob = {};
  const StepCost without = model.forward(plain);
  EXPECT_DOUBLE_EQ(with.gemm, without.gemm);
  EXPECT_DOUBLE_EQ(with.other, without.other);
  EXPECT_DOUBLE_EQ(with.attention, without.attention);
}

// A draft model of its own waits for nobody, and is not run where nothing is to be drafted.
TEST_F(DataParallelSteps, DraftModelsAloneAreIdleWhereTheirRankIs) {
  SpeculativeForward alone = make(true);
  const StepCost idle = alone.forward(verify({0, 8, 5, 1}, 8));
  EXPECT_EQ(idle.draft_seconds, 0);
  EXPECT_EQ(idle.draft_extend_seconds, 0);
  EXPECT_GT(idle.gemm, 0);
  SpeculativeForward shared = make(false);
  const StepCost own = alone.forward(verify({5, 8, 0, 1}, 8));
  EXPECT_LT(own.collective, shared.forward(verify({5, 8, 0, 1}, 8)).collective);
}

// While another rank prefills, a rank without a prompt runs the target's pass and the draft model's behind
// it.
TEST_F(DataParallelSteps, PrefillsAreExtendedByAllRanks) {
  SpeculativeForward model = make(false);
  attention::ForwardMetadata idle;
  idle.forward_mode = proto::IDLE;
  const std::vector<std::uint32_t> tokens = {0, 3000, 0, 10}, logits = {0, 2, 0, 1};
  idle.global_num_tokens = tokens;
  idle.global_num_tokens_for_logprob = logits;
  idle.is_extend_in_batch = true;
  const StepCost step = model.forward(idle);
  EXPECT_EQ(step.draft_seconds, 0);
  EXPECT_GT(step.draft_extend_seconds, 0);
  EXPECT_LT(step.draft_extend_seconds, 0.1 * step.gemm + step.collective);
}

// A whole model that drafts, whose extend is not captured: spec v2 issues it while the target verifies.
class HostAndDevice : public DataParallelSteps {
 protected:
  HostAndDevice() : DataParallelSteps("llama-3.1-8b") { layout_ = {}; }
  StepCost step(const SpeculationShape& shape, std::uint32_t requests) {
    auto draft = std::make_unique<DraftModel>(load_draft_model("STANDALONE", "llama-3.2-3b", target_));
    const Shard shard = make_shard(draft->config, layout_, 0);
    auto forward = priced(draft->config, layout_);
    SpeculativeForward model(priced(target_, layout_), std::move(draft), std::move(forward), shard, profile_,
                             shape);
    attention::ForwardMetadata metadata = verify({requests}, 8);
    metadata.global_num_tokens = metadata.global_num_tokens_for_logprob = {};
    return model.forward(metadata);
  }
  static double seconds(const StepCost& cost) {
    return cost.attention + cost.gemm + cost.collective + cost.other + cost.launch;
  }
};

TEST_F(HostAndDevice, SpecV2LastsAsLongAsTheLongerOfThem) {
  SpeculationShape shape = {.num_steps = 3, .num_draft_tokens = kDrafts, .extend_captured = false};
  const double in_turn = seconds(step(shape, 4));
  shape.host = {.seconds = 0, .seconds_of_request = 0, .overlaps = true};
  const StepCost side_by_side = step(shape, 4);
  EXPECT_LT(seconds(side_by_side), in_turn - 1e-3) << "28 layers are issued while 32 compute";
  EXPECT_NEAR(seconds(side_by_side), std::max(side_by_side.device_seconds, side_by_side.issue_seconds),
              1e-12);
  EXPECT_GE(side_by_side.launch, 0);
  EXPECT_GT(side_by_side.draft_extend_seconds, 0);
  // A little of the host hides, much of it is waited for.
  shape.host.seconds = 1;
  EXPECT_NEAR(seconds(step(shape, 4)), 1 + side_by_side.issue_seconds, 1e-9);
  shape.host.overlaps = false;
  EXPECT_NEAR(seconds(step(shape, 4)), 1 + in_turn, 1e-9);
  shape.extend_captured = true;
  shape.host = {.seconds = 1e-4, .seconds_of_request = 1e-5, .overlaps = true};
  const StepCost captured = step(shape, 4);
  EXPECT_NEAR(seconds(captured), captured.device_seconds, 1e-12);
}

TEST_F(HostAndDevice, ChoosingGuessesTakesTimeThatGrowsWithThem) {
  SpeculationShape shape = {.num_steps = 3, .num_draft_tokens = kDrafts};
  const double one = step(shape, 4).draft_seconds;
  shape.topk = 4;
  const double four = step(shape, 4).draft_seconds;
  shape.topk = 8;
  EXPECT_GT(four, one + 0.3e-3);
  EXPECT_GT(step(shape, 4).draft_seconds, four);
}

}  // namespace
}  // namespace tpsim::rank
