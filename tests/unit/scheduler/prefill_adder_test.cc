#include "scheduler/prefill_adder.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tpsim::scheduler {
namespace {

class PrefillAdderTest : public ::testing::Test {
 protected:
  void make_pool(std::uint64_t tokens, std::uint32_t page_size = 1, bool disable_radix_cache = false) {
    SchedulerConfig config;
    config.max_total_num_tokens = tokens;
    config.page_size = page_size;
    config.disable_radix_cache = disable_radix_cache;
    pool_ = std::make_unique<KvPool>(config);
  }
  Req* req(std::uint32_t input, std::uint32_t max_new, std::uint32_t output = 0) {
    auto source = std::make_unique<WorkloadRequest>();
    next_ += 1000000;
    source->prompt.append({next_, input});
    source->max_new_tokens = max_new;
    source->sampling.ignore_eos = false;
    auto r = std::make_unique<Req>();
    r->source = borrowed(*source);
    r->may_stop = true;
    r->tokens = source->prompt;
    r->input_len = input;
    r->max_new_tokens = max_new;
    r->output_len = output;
    sources_.push_back(std::move(source));
    reqs_.push_back(std::move(r));
    return reqs_.back().get();
  }
  // The same, and the output goes on to max_new_tokens.
  Req* req_to_end(std::uint32_t input, std::uint32_t max_new, std::uint32_t output = 0) {
    Req* r = req(input, max_new, output);
    sources_.back()->sampling.ignore_eos = true;
    r->may_stop = false;
    return r;
  }
  PrefillAdder adder(double ratio, std::uint32_t max_prefill, std::optional<std::uint32_t> chunk,
                     std::uint32_t mixed = 0) {
    return PrefillAdder(*pool_, running_, {ratio, max_prefill, chunk, mixed}, rules_);
  }

  ReleaseRules rules_ = default_release().rules;
  std::unique_ptr<KvPool> pool_;
  std::vector<Req*> running_;
  std::vector<std::unique_ptr<WorkloadRequest>> sources_;
  std::vector<std::unique_ptr<Req>> reqs_;
  kvcache::TokenId next_ = 0;
};

TEST_F(PrefillAdderTest, StopsAtTheInputBudgetButTakesTheFirstWhole) {
  make_pool(100000);
  PrefillAdder a = adder(0.5, 1000, std::nullopt);
  EXPECT_EQ(a.add_one_req(*req(5000, 10)), AddReqResult::kOther);  // admitted, and the batch is full
  EXPECT_EQ(a.can_run_list().size(), 1u);
  PrefillAdder b = adder(0.5, 1000, std::nullopt);
  EXPECT_EQ(b.add_one_req(*req(400, 10)), AddReqResult::kContinue);
  EXPECT_EQ(b.add_one_req(*req(600, 10)), AddReqResult::kOther);
  EXPECT_EQ(b.can_run_list().size(), 1u);
}

TEST_F(PrefillAdderTest, CutsTheLastRequestToTheChunk) {
  make_pool(100000);
  PrefillAdder a = adder(0.5, 16384, 1024);
  EXPECT_EQ(a.add_one_req(*req(700, 10)), AddReqResult::kContinue);
  Req* cut = req(2000, 10);
  EXPECT_EQ(a.add_one_req(*cut), AddReqResult::kOther);
  EXPECT_EQ(cut->extend_len, 324u);
  EXPECT_EQ(a.can_run_list().size(), 2u);
}

TEST_F(PrefillAdderTest, ChunksEndOnPages) {
  make_pool(102400, 64);
  PrefillAdder a = adder(0.5, 16384, 1024);
  EXPECT_EQ(a.add_one_req(*req(100, 10)), AddReqResult::kContinue);  // 128 tokens of the chunk
  Req* cut = req(2000, 10);
  a.add_one_req(*cut);
  EXPECT_EQ(cut->extend_len, 896u);
}

TEST_F(PrefillAdderTest, ReservesWhatRunningRequestsWillStillGenerate) {
  make_pool(1000);
  running_.push_back(req(100, 900, 100));  // 800 to come; at ratio 0.5, 400 are reserved
  PrefillAdder a = adder(0.5, 16384, std::nullopt);
  EXPECT_EQ(a.add_one_req(*req(500, 99)), AddReqResult::kNoToken);  // 500 + 99 + 1 is not below 600
  EXPECT_EQ(a.can_run_list().size(), 0u);
  EXPECT_NE(a.add_one_req(*req(500, 98)), AddReqResult::kOther);
  EXPECT_EQ(a.can_run_list().size(), 1u);
}

TEST_F(PrefillAdderTest, ReservesAllOfAnOutputOfKnownLength) {
  make_pool(1000, 1, /*disable_radix_cache=*/true);
  running_.push_back(req_to_end(100, 500, 100));  // 400 to come, whatever the ratio
  PrefillAdder a = adder(0.5, 16384, std::nullopt);
  EXPECT_EQ(a.add_one_req(*req(500, 99)), AddReqResult::kNoToken);
  EXPECT_NE(a.add_one_req(*req(500, 98)), AddReqResult::kOther);
  rules_ = v0_5_14().rules;
  PrefillAdder b = adder(0.5, 16384, std::nullopt);
  EXPECT_NE(b.add_one_req(*req(500, 298)), AddReqResult::kNoToken);
}

TEST_F(PrefillAdderTest, TheEstimateOfOneRequestIsClipped) {
  make_pool(10000);
  PrefillAdder a = adder(0.5, 16384, std::nullopt);
  a.add_one_req(*req(100, 1000000));
  EXPECT_EQ(a.can_run_list().size(), 1u);
}

TEST_F(PrefillAdderTest, AContinuedChunkAlwaysMovesAndKeepsOthersFromBeingCut) {
  make_pool(100000);
  Req* chunked = req(5000, 10);
  chunked->prefix_len = 1024;
  PrefillAdder a = adder(0.5, 16384, 1024);
  a.add_chunked_req(*chunked);
  EXPECT_EQ(chunked->extend_len, 1024u);
  Req* other = req(2000, 10);
  EXPECT_EQ(a.add_one_req(*other), AddReqResult::kOther);
  EXPECT_EQ(a.can_run_list().size(), 1u);
}

TEST_F(PrefillAdderTest, TheLastChunkLeavesRoomForOthers) {
  make_pool(100000);
  Req* chunked = req(1200, 10);
  chunked->prefix_len = 1024;
  PrefillAdder a = adder(0.5, 16384, 1024);
  a.add_chunked_req(*chunked);
  EXPECT_EQ(chunked->extend_len, 176u);
  Req* other = req(2000, 10);
  a.add_one_req(*other);
  EXPECT_EQ(other->extend_len, 848u);
}

TEST_F(PrefillAdderTest, MixedDecodesTakeTheirTokensFromEveryBudget) {
  make_pool(100000);
  PrefillAdder a = adder(0.5, 16384, 1024, 24);
  Req* cut = req(2000, 10);
  a.add_one_req(*cut);
  EXPECT_EQ(cut->extend_len, 1000u);
}

// Without a radix pool SGLang plays the future through: the running request ends and frees its tokens.
TEST_F(PrefillAdderTest, WithoutARadixPoolTheFutureIsPlayedThrough) {
  make_pool(1000, 1, /*disable_radix_cache=*/true);
  running_.push_back(req_to_end(300, 100, 50));
  running_.back()->kv_committed_len = 0;
  PrefillAdder fits = adder(1.0, 16384, std::nullopt);
  fits.add_one_req(*req_to_end(500, 100));
  EXPECT_EQ(fits.can_run_list().size(), 1u);
  PrefillAdder does_not = adder(1.0, 16384, std::nullopt);
  EXPECT_EQ(does_not.add_one_req(*req_to_end(900, 200)), AddReqResult::kNoToken);
}

TEST_F(PrefillAdderTest, WithoutARadixPoolChunksNeedNotEndOnPages) {
  make_pool(102400, 64, /*disable_radix_cache=*/true);
  PrefillAdder a = adder(0.5, 16384, 1024, 24);
  Req* cut = req_to_end(2000, 10);
  a.add_one_req(*cut);
  EXPECT_EQ(cut->extend_len, 1000u);
  EXPECT_EQ(a.budget_state(), AddReqResult::kOther);
}

}  // namespace
}  // namespace tpsim::scheduler
