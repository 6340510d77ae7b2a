#include "rank/parallel/rank_state.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/base/error.h"
#include "proto/versions.h"
#include "tests/unit/rank/parallel/random_stream.h"

namespace tpsim::rank {
namespace {

using kvcache::PageRun;
using proto::ForwardBatch;

RankStateConfig small_config() {
  RankStateConfig config;
  config.rank = 3;
  config.page_size = 4;
  config.num_pages = 100;
  config.kv_bytes_per_token = 10;
  config.max_requests = 16;
  config.check = true;
  return config;
}

ForwardBatch batch_of(std::uint64_t sequence_number, proto::ForwardMode mode) {
  ForwardBatch batch;
  batch.set_version(kForwardBatchVersion);
  batch.set_sequence_number(sequence_number);
  batch.set_forward_mode(mode);
  return batch;
}

void add_edit(ForwardBatch& batch, std::uint32_t row, std::uint32_t start, std::vector<PageRun> runs) {
  batch.add_table_req(row);
  batch.add_table_start_page(start);
  batch.add_table_num_runs(static_cast<std::uint32_t>(runs.size()));
  for (const PageRun& run : runs) {
    batch.add_run_first_page(run.first);
    batch.add_run_num_pages(run.count);
  }
}

void add_extend(ForwardBatch& batch, std::uint32_t row, std::uint32_t prefix, std::uint32_t length) {
  batch.add_extend_req_pool_indices(row);
  batch.add_extend_prefix_lens(prefix);
  batch.add_extend_lens(length);
}

// Request 5: 7 tokens on pages 10 and 11.
ForwardBatch first_batch() {
  ForwardBatch batch = batch_of(0, proto::EXTEND);
  add_edit(batch, 5, 0, {{10, 2}});
  add_extend(batch, 5, 0, 7);
  return batch;
}

std::string refusal(RankState& state, const ForwardBatch& batch) {
  try {
    state.apply(batch);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RankState, ExtendThenDecodeTakesThePageAfterTheLast) {
  RankState state(small_config());
  const ForwardBatch extend = first_batch();
  const auto first = state.apply(extend);
  ASSERT_EQ(first.extend_lens.size(), 1u);
  EXPECT_EQ(first.extend_lens[0], 7u);
  EXPECT_TRUE(first.decode_seq_lens.empty());
  EXPECT_EQ(state.held_pages(), 2u);

  ForwardBatch decode = batch_of(1, proto::DECODE);
  decode.add_decode_join(5);
  decode.set_capture_bucket(8);
  const auto second = state.apply(decode);
  EXPECT_EQ(second.capture_bucket, 8u);
  ASSERT_EQ(second.decode_seq_lens.size(), 1u);
  EXPECT_EQ(second.decode_seq_lens[0], 8u);
  EXPECT_EQ(state.held_pages(), 2u);

  const ForwardBatch steady = batch_of(2, proto::DECODE);
  EXPECT_EQ(state.apply(steady).decode_seq_lens[0], 9u);
  EXPECT_EQ(state.held_pages(), 3u);
  EXPECT_EQ(state.pages(5), (std::vector<PageRun>{{10, 3}}));

  ForwardBatch leave = batch_of(3, proto::IDLE);
  leave.add_decode_leave(5);
  state.apply(leave);
  EXPECT_EQ(state.held_pages(), 0u);
  EXPECT_EQ(state.peak_held_pages(), 3u);
  EXPECT_EQ(state.peak_held_bytes(), 3u * 4 * 10);
}

ForwardBatch verify_of_row_5(std::uint32_t drafts, std::uint32_t kept) {
  ForwardBatch verify = batch_of(1, proto::TARGET_VERIFY);
  verify.add_decode_join(5);
  add_edit(verify, 5, 2, {{12, 1}});
  verify.set_num_draft_tokens(drafts);
  verify.set_capture_bucket(4);
  if (kept > 0) {
    verify.add_accept_req_pool_indices(5);
    verify.add_accept_lens(kept);
  }
  return verify;
}

TEST(RankState, AVerifiedRequestGrowsByWhatItKeeps) {
  RankState state(small_config());
  const ForwardBatch extend = first_batch();  // 7 tokens in pages 10 and 11 of 4
  state.apply(extend);
  const ForwardBatch verify = verify_of_row_5(5, 3);
  const auto pass = state.apply(verify);
  ASSERT_EQ(pass.extend_lens.size(), 1u);
  EXPECT_EQ(pass.extend_prefix_lens[0], 7u);
  EXPECT_EQ(pass.extend_lens[0], 5u);
  EXPECT_EQ(state.held_pages(), 3u);
  ForwardBatch decode = batch_of(2, proto::DECODE);
  add_edit(decode, 5, 3, {});
  EXPECT_EQ(state.apply(decode).decode_seq_lens[0], 11u);
}

TEST(RankState, NumericRanksSayThemselvesWhatIsKept) {
  RankState state(small_config());
  state.apply(first_batch());
  const ForwardBatch verify = verify_of_row_5(5, 0);
  state.apply(verify);
  const std::vector<std::uint32_t> kept = {1};
  state.accept(kept);
  EXPECT_EQ(state.apply(batch_of(2, proto::DECODE)).decode_seq_lens[0], 9u);
}

TEST(RankState, RefusesToVerifyWhatPagesDoNotCover) {
  RankState state(small_config());
  state.apply(first_batch());
  EXPECT_NE(refusal(state, verify_of_row_5(6, 2)).find("verifies 6 tokens after 7, but its pages cover 12"),
            std::string::npos);
  RankState other(small_config());
  other.apply(first_batch());
  EXPECT_NE(refusal(other, verify_of_row_5(5, 6)).find("keeps 6 of 5 tokens"), std::string::npos);
}

TEST(RankState, SharedPagesCountOnce) {
  RankState state(small_config());
  ForwardBatch batch = batch_of(0, proto::EXTEND);
  add_edit(batch, 1, 0, {{10, 2}});
  add_edit(batch, 2, 0, {{10, 1}, {20, 1}});
  add_extend(batch, 1, 0, 8);
  add_extend(batch, 2, 4, 4);
  state.apply(batch);
  EXPECT_EQ(state.held_pages(), 3u);
}

TEST(RankState, RowReusedInTheBatchInWhichItsRequestLeaves) {
  RankState state(small_config());
  state.apply(first_batch());
  ForwardBatch join = batch_of(1, proto::DECODE);
  join.add_decode_join(5);
  state.apply(join);
  ForwardBatch reuse = batch_of(2, proto::EXTEND);
  reuse.add_decode_leave(5);
  add_edit(reuse, 5, 0, {{40, 1}});
  add_extend(reuse, 5, 0, 3);
  state.apply(reuse);
  EXPECT_TRUE(state.decode_set().empty());
  EXPECT_EQ(state.held_pages(), 1u);
}

TEST(RankState, RequestThatEndsWithItsPrefillIsDroppedAtTheNextDecode) {
  RankState state(small_config());
  ForwardBatch batch = first_batch();
  add_edit(batch, 6, 0, {{50, 4}});
  add_extend(batch, 6, 0, 16);
  state.apply(batch);
  EXPECT_EQ(state.held_pages(), 6u);
  ForwardBatch decode = batch_of(1, proto::DECODE);
  decode.add_decode_join(5);
  state.apply(decode);
  EXPECT_EQ(state.held_pages(), 2u);
}

TEST(RankState, EndOfRunOnlyCounts) {
  RankState state(small_config());
  state.apply(first_batch());
  ForwardBatch last = batch_of(1, proto::IDLE);
  last.set_end_of_run(true);
  state.apply(last);
  EXPECT_EQ(state.next_sequence_number(), 2u);
}

TEST(RankState, RefusesWhatBreaksTheRules) {
  struct Case {
    const char* expected;
    void (*spoil)(ForwardBatch&);
  };
  const Case cases[] = {
      {"version is 9", [](ForwardBatch& b) { b.set_version(9); }},
      {"sequence number is 7", [](ForwardBatch& b) { b.set_sequence_number(7); }},
      {"forward mode 0", [](ForwardBatch& b) { b.set_forward_mode(proto::FORWARD_MODE_UNSPECIFIED); }},
      {"forward mode 6", [](ForwardBatch& b) { b.set_forward_mode(proto::DRAFT_EXTEND); }},
      {"TARGET_VERIFY batch has no extend part",
       [](ForwardBatch& b) { b.set_forward_mode(proto::TARGET_VERIFY); }},
      {"has no extend part", [](ForwardBatch& b) { b.set_forward_mode(proto::DECODE); }},
      {"only DECODE and TARGET_VERIFY replay", [](ForwardBatch& b) { b.set_capture_bucket(4); }},
      {"2 requests, 1 prefix", [](ForwardBatch& b) { b.add_extend_req_pool_indices(6); }},
      {"extended twice", [](ForwardBatch& b) { add_extend(b, 5, 0, 1); }},
      {"by no token", [](ForwardBatch& b) { b.set_extend_lens(0, 0); }},
      {"do not cover", [](ForwardBatch& b) { b.set_extend_lens(0, 9); }},
      {"do not cover", [](ForwardBatch& b) { b.set_extend_prefix_lens(0, UINT32_MAX); }},
      {"beyond the 16 rows", [](ForwardBatch& b) { b.set_extend_req_pool_indices(0, 16); }},
      {"beyond the 16 rows", [](ForwardBatch& b) { b.set_table_req(0, UINT32_MAX); }},
      {"cannot be cut to 1", [](ForwardBatch& b) { b.set_table_start_page(0, 1); }},
      {"different lengths", [](ForwardBatch& b) { b.add_table_start_page(0); }},
      {"different lengths", [](ForwardBatch& b) { b.add_run_first_page(0); }},
      {"more page runs", [](ForwardBatch& b) { b.set_table_num_runs(0, 2); }},
      {"table edits use 0", [](ForwardBatch& b) { b.set_table_num_runs(0, 0); }},
      {"not in a pool of 100", [](ForwardBatch& b) { b.set_run_first_page(0, 99); }},
      {"not in a pool of 100", [](ForwardBatch& b) { b.set_run_first_page(0, UINT32_MAX); }},
      {"not in a pool of 100", [](ForwardBatch& b) { b.set_run_num_pages(0, 0); }},
      {"not in a pool of 100", [](ForwardBatch& b) { b.set_run_num_pages(0, UINT32_MAX); }},
      {"is not in it", [](ForwardBatch& b) { b.add_decode_leave(5); }},
      {"never extended", [](ForwardBatch& b) { b.add_decode_join(5); }},
  };
  for (const Case& c : cases) {
    RankState state(small_config());
    ForwardBatch batch = first_batch();
    c.spoil(batch);
    const std::string text = refusal(state, batch);
    EXPECT_NE(text.find(c.expected), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 3: batch 0 is refused: "), 0u) << text;
  }
}

TEST(RankState, RefusesWhatBreaksTheRulesOfDecoding) {
  struct Case {
    const char* expected;
    void (*spoil)(ForwardBatch&);
  };
  const Case cases[] = {
      {"joins the decode set twice", [](ForwardBatch& b) { b.add_decode_join(5); }},
      {"decode set is empty", [](ForwardBatch& b) { b.add_decode_leave(5); }},
      {"is not in it", [](ForwardBatch& b) { b.mutable_decode_leave()->Resize(2, 5); }},
      {"was cut to 1 pages", [](ForwardBatch& b) { add_edit(b, 5, 1, {}); }},
      {"extended while it decodes",
       [](ForwardBatch& b) {
         b.set_forward_mode(proto::MIXED);
         add_extend(b, 5, 0, 1);
       }},
      {"beyond the pool of 100",
       [](ForwardBatch& b) {
         add_edit(b, 5, 0, {{98, 2}});
       }},
  };
  for (const Case& c : cases) {
    RankState state(small_config());
    state.apply(first_batch());
    ForwardBatch join = batch_of(1, proto::DECODE);
    join.add_decode_join(5);
    state.apply(join);
    ForwardBatch batch = batch_of(2, proto::DECODE);
    c.spoil(batch);
    const std::string text = refusal(state, batch);
    EXPECT_NE(text.find(c.expected), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 3: batch 2 is refused: "), 0u) << text;
  }
  RankState state(small_config());
  state.apply(first_batch());
  ForwardBatch batch = batch_of(1, proto::DECODE);
  batch.add_decode_join(5);
  batch.set_capture_bucket(0);
  state.apply(batch);
  ForwardBatch extend = batch_of(2, proto::EXTEND);
  add_edit(extend, 6, 0, {{30, 1}});
  add_extend(extend, 6, 0, 4);
  state.apply(extend);
  ForwardBatch two = batch_of(3, proto::DECODE);
  two.add_decode_join(6);
  two.set_capture_bucket(1);
  EXPECT_NE(refusal(state, two).find("capture bucket is 1, but 2"), std::string::npos);
}

// Against bookkeeping page by page, over streams with everything in them.
class RankStateRandom : public testing::TestWithParam<std::uint32_t> {};

TEST_P(RankStateRandom, HoldsWhatThePlainReferenceHolds) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    RandomStream::Options options;
    options.seed = seed;
    options.page_size = GetParam();
    options.num_pages = seed % 2 == 0 ? 900 : 4000;
    RandomStream stream(options);
    RankStateConfig config;
    config.page_size = options.page_size;
    config.num_pages = options.num_pages;
    config.max_requests = options.num_rows;
    config.check = true;
    RankState state(config);
    ForwardBatch batch;
    std::uint64_t peak = 0;
    for (int step = 0; step < 1500; ++step) {
      stream.next(batch);
      const auto metadata = state.apply(batch);
      const std::vector<std::uint32_t> expected_set = stream.decode_set();
      ASSERT_TRUE(std::equal(expected_set.begin(), expected_set.end(), state.decode_set().begin(),
                             state.decode_set().end()))
          << "seed " << seed << " step " << step;
      for (std::size_t i = 0; i < expected_set.size(); ++i) {
        const std::uint32_t row = expected_set[i];
        ASSERT_EQ(state.decode_seq_lens()[i], stream.seq_len(row));
        std::vector<std::uint32_t> pages;
        for (const PageRun& run : state.pages(row)) {
          for (std::uint32_t p = 0; p < run.count; ++p) pages.push_back(run.first + p);
        }
        ASSERT_EQ(pages, stream.pages(row)) << "seed " << seed << " step " << step;
      }
      if (batch.forward_mode() == proto::DECODE || batch.forward_mode() == proto::MIXED) {
        ASSERT_EQ(metadata.decode_seq_lens.size(), expected_set.size());
      }
      ASSERT_EQ(state.held_pages(), stream.held_pages()) << "seed " << seed << " step " << step;
      peak = std::max(peak, stream.held_pages());
      ASSERT_EQ(state.peak_held_pages(), peak);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizes, RankStateRandom, testing::Values(1, 16, 64));

}  // namespace
}  // namespace tpsim::rank
