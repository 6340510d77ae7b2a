// The plans of every backend over random ragged batches: each KV token of each request is read exactly once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attention/backends/flashinfer_mla.h"
#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "attention/split_heuristics.h"
#include "tests/unit/attention/gpu.h"
#include "tests/unit/attention/listed_backends.h"

namespace tpsim::attention::plan_test {
namespace {

using tpsim::testing::gpu;

struct Batch {
  std::vector<std::uint32_t> prefixes, extends, decodes;
  ForwardMetadata metadata(proto::ForwardMode mode) const {
    ForwardMetadata m;
    m.forward_mode = mode;
    if (mode != proto::DECODE) {
      m.extend_prefix_lens = prefixes;
      m.extend_lens = extends;
    }
    if (mode != proto::EXTEND) m.decode_seq_lens = decodes;
    return m;
  }
};

Batch random_batch(std::mt19937_64& random) {
  Batch batch;
  const auto length = [&random] {
    const std::uint64_t kind = random() % 4;
    return static_cast<std::uint32_t>(1 + random() % (kind == 0   ? 10
                                                      : kind == 1 ? 300
                                                      : kind == 2 ? 5000
                                                                  : 100000));
  };
  for (std::uint64_t i = 1 + random() % 40; i > 0; --i) batch.decodes.push_back(length());
  for (std::uint64_t i = 1 + random() % 6; i > 0; --i) {
    batch.extends.push_back(length());
    batch.prefixes.push_back(random() % 2 == 0 ? 0 : length());
  }
  return batch;
}

LayerShape random_layer(std::mt19937_64& random) {
  LayerShape layer;
  layer.num_kv_heads = 1U << random() % 4;
  layer.num_q_heads = layer.num_kv_heads << random() % 5;
  layer.head_dim = layer.v_head_dim = std::vector<std::uint32_t>{64, 128, 192, 256}[random() % 4];
  layer.sliding_window = random() % 3 == 0 ? static_cast<std::uint32_t>(1 + random() % 4096) : 0;
  return layer;
}

class Plans : public ::testing::TestWithParam<std::string> {};
class DecodePlans : public Plans {};

TEST_P(DecodePlans, SplitsCoverEveryKvTokenOnce) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    const Batch batch = random_batch(random);
    const LayerShape layer = random_layer(random);
    auto backend = create_attention_backend(GetParam(), gpu(testing::device_of(GetParam(), round)), 1);
    auto& planned = dynamic_cast<PlannedBackend&>(*backend);
    planned.init_forward_metadata(batch.metadata(proto::DECODE));
    const DecodePlan& plan = planned.decode_plan(layer);
    ASSERT_EQ(plan.items.size(), batch.decodes.size());
    ASSERT_GT(plan.blocks_per_split, 0u);
    std::vector<bool> seen(batch.decodes.size());
    for (const DecodeItem& item : plan.items) {
      ASSERT_FALSE(seen[item.request]);
      seen[item.request] = true;
      const std::uint32_t length = batch.decodes[item.request];
      ASSERT_EQ(item.kv_end, length);
      const bool windowed = layer.sliding_window != 0 && !testing::gathers(GetParam());
      ASSERT_EQ(item.kv_begin, windowed && length > layer.sliding_window ? length - layer.sliding_window : 0);
      // The parts cover the range, and none is empty.
      const std::uint64_t tokens = item.kv_end - item.kv_begin;
      ASSERT_GE(item.splits, 1u);
      ASSERT_GE(std::uint64_t{item.splits} * item.split_tokens, tokens);
      ASSERT_LT(std::uint64_t{item.splits - 1} * item.split_tokens, tokens);
      if (item.splits > 1) {
        ASSERT_TRUE(plan.merge);
      }
    }
  }
}

// Who only prices may leave the items out; who computes makes them.
TEST_P(DecodePlans, ArePricedAsTheirItemsAddUp) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    Batch batch = random_batch(random);
    if (round % 3 == 0) batch.decodes.resize(1 + random() % batch.decodes.size());
    const LayerShape layer = random_layer(random);
    const proto::HardwareProfile profile = gpu(testing::device_of(GetParam(), round));
    auto backend = create_attention_backend(GetParam(), profile, 1);
    auto& planned = dynamic_cast<PlannedBackend&>(*backend);
    planned.init_forward_metadata(batch.metadata(proto::DECODE));
    const KernelCost sums = planned.forward_decode(layer);
    const PlanCost model(profile, "attention." + GetParam() + ".decode");
    const KernelCost items = planned.decode_cost(model, planned.decode_plan(layer), layer);
    ASSERT_EQ(sums.seconds, items.seconds);
    ASSERT_EQ(sums.bytes, items.bytes);
    ASSERT_EQ(sums.flops, items.flops);
    ASSERT_EQ(sums.launches, items.launches);
  }
}

TEST_P(Plans, ExtendTilesCoverWhatEachRowMaySee) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    Batch batch = random_batch(random);
    for (auto& length : batch.extends) length = std::min(length, 3000U);
    const LayerShape layer = random_layer(random);
    auto backend = create_attention_backend(GetParam(), gpu(testing::device_of(GetParam(), round)), 1);
    auto& planned = dynamic_cast<PlannedBackend&>(*backend);
    const bool mixed = round % 3 == 0;
    planned.init_forward_metadata(batch.metadata(mixed ? proto::MIXED : proto::EXTEND));
    const ExtendPlan& plan = planned.extend_plan(layer);
    ASSERT_EQ(plan.items.size(), batch.extends.size() + (mixed ? batch.decodes.size() : 0));
    for (std::size_t i = 0; i < batch.extends.size(); ++i) {
      const ExtendItem& item = plan.items[i];
      ASSERT_EQ(item.q_len, batch.extends[i]);
      ASSERT_EQ(item.prefix, batch.prefixes[i]);
      for (std::uint32_t row = 0; row < item.q_len; row += plan.tile_m) {
        const TileRange range = tile_range(plan, item, row, layer.sliding_window);
        const std::uint32_t last = std::min(row + plan.tile_m, item.q_len);
        // First and last row of the tile: causal, and inside the window.
        const std::uint32_t oldest = item.prefix + row + 1;
        const std::uint32_t first_seen =
            layer.sliding_window != 0 && oldest > layer.sliding_window ? oldest - layer.sliding_window : 0;
        ASSERT_LE(range.begin, first_seen);
        ASSERT_GT(range.begin + plan.tile_n, first_seen);
        ASSERT_GE(range.end, item.prefix + last);
        ASSERT_LT(range.end, item.prefix + last + plan.tile_n);
      }
    }
    // A decoding request of a mixed batch is an extend by one token.
    for (std::size_t i = batch.extends.size(); i < plan.items.size(); ++i) {
      ASSERT_EQ(plan.items[i].q_len, 1u);
      ASSERT_EQ(plan.items[i].prefix + 1, batch.decodes[i - batch.extends.size()]);
    }
  }
}

TEST_P(Plans, TileTokensInClosedFormAreTheSumOverTiles) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    Batch batch = random_batch(random);
    for (auto& length : batch.extends) length = std::min(length, 20000U);
    const LayerShape layer = random_layer(random);
    auto backend = create_attention_backend(GetParam(), gpu(testing::device_of(GetParam(), round)), 1);
    auto& planned = dynamic_cast<PlannedBackend&>(*backend);
    planned.init_forward_metadata(batch.metadata(proto::EXTEND));
    const ExtendPlan& plan = planned.extend_plan(layer);
    ASSERT_GT(plan.head_blocks, 0u);
    ASSERT_GE(plan.rows * plan.head_blocks, plan.tile_m * layer.num_q_heads / 2);
    for (const ExtendItem& item : plan.items) {
      std::uint64_t sum = 0;
      for (std::uint32_t row = 0; row < item.q_len; row += plan.tile_m) {
        const TileRange range = tile_range(plan, item, row, layer.sliding_window);
        sum += range.end - range.begin;
      }
      ASSERT_EQ(tile_tokens(plan, item, layer.sliding_window), sum);
    }
  }
}

TEST_P(Plans, ASteadyPlanIsTheSameAsAFreshOne) {
  // Scratch space, memory of earlier answers and guesses must not change a plan: every rank has its own.
  std::mt19937_64 random(4);
  const LayerShape layer = [] {
    LayerShape l;
    l.num_q_heads = 8;
    l.num_kv_heads = 1;
    l.head_dim = l.v_head_dim = 128;
    return l;
  }();
  auto old = create_attention_backend(GetParam(), gpu(), 1);
  for (int round = 0; round < 100; ++round) {
    const Batch batch = random_batch(random);
    auto fresh = create_attention_backend(GetParam(), gpu(), 1);
    for (const proto::ForwardMode mode : {proto::DECODE, proto::EXTEND, proto::MIXED}) {
      if (mode == proto::DECODE && find_backend(GetParam(), "").row.prefill_only) continue;
      old->init_forward_metadata(batch.metadata(mode));
      fresh->init_forward_metadata(batch.metadata(mode));
      const KernelCost a = mode == proto::DECODE ? old->forward_decode(layer) : old->forward_extend(layer);
      const KernelCost b =
          mode == proto::DECODE ? fresh->forward_decode(layer) : fresh->forward_extend(layer);
      ASSERT_EQ(a.seconds, b.seconds);
      ASSERT_EQ(a.bytes, b.bytes);
      ASSERT_EQ(a.launches, b.launches);
    }
  }
}

TEST_P(DecodePlans, CostGrowsWithTheBatchAndItsLengths) {
  auto backend = create_attention_backend(GetParam(), gpu(), 1);
  LayerShape layer;
  layer.num_q_heads = 8;
  layer.num_kv_heads = 1;
  layer.head_dim = layer.v_head_dim = 128;
  double before = 0;
  for (const std::uint32_t length : {1000U, 4000U, 16000U, 64000U}) {
    const Batch batch{{0}, {length}, std::vector<std::uint32_t>(32, length)};
    backend->init_forward_metadata(batch.metadata(proto::DECODE));
    const KernelCost cost = backend->forward_decode(layer);
    EXPECT_GT(cost.seconds, before);
    // At least every KV byte is read: no cost is below the memory bandwidth's.
    EXPECT_GE(cost.bytes, 32.0 * length * 2 * 128 * 2);
    EXPECT_GE(cost.seconds, 32.0 * length * 2 * 128 * 2 / 4e12);
    before = cost.seconds;
  }
}

TEST_P(Plans, CostGrowsWithTheLengthOfThePrompt) {
  auto backend = create_attention_backend(GetParam(), gpu(), 1);
  LayerShape layer;
  layer.num_q_heads = 8;
  layer.num_kv_heads = 1;
  layer.head_dim = layer.v_head_dim = 128;
  double before = 0;
  for (const std::uint32_t length : {1000U, 4000U, 16000U, 64000U}) {
    const Batch batch{{0}, {length}, {}};
    backend->init_forward_metadata(batch.metadata(proto::EXTEND));
    const KernelCost cost = backend->forward_extend(layer);
    EXPECT_GT(cost.seconds, before);
    EXPECT_GE(cost.flops, 2.0 * length * length * 8 * 128);  // causal: half of the square
    EXPECT_GE(cost.seconds, 2.0 * length * length * 8 * 128 / 1e15);
    before = cost.seconds;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Plans, ::testing::ValuesIn(testing::mha_backends()));
INSTANTIATE_TEST_SUITE_P(Backends, DecodePlans, ::testing::ValuesIn(testing::mha_backends(true)));

// hopper/heuristics.h, for one sequence at a time.
std::uint32_t flash_num_splits(std::uint32_t blocks, std::uint32_t multiprocessors, std::uint32_t kv_steps) {
  // Nearly full without splitting, or too short to split.
  if (blocks >= 0.8 * multiprocessors || kv_steps <= 4) return 1;
  const std::uint32_t most = std::min({128U, multiprocessors, kv_steps});
  double best = 0;
  const auto fill = [&](std::uint32_t splits) {
    const double waves = double(blocks) * splits / multiprocessors;
    return waves / std::ceil(waves);
  };
  for (std::uint32_t splits = 1; splits <= most; ++splits) best = std::max(best, fill(splits));
  for (std::uint32_t splits = 1; splits <= most; ++splits) {
    if (fill(splits) >= 0.85 * best) return splits;
  }
  return 1;
}

TEST(Fa3, SplitsOnlyWhereBlocksDoNotFillTheDevice) {
  EXPECT_EQ(flash_num_splits(120, 132, 100), 1u);
  EXPECT_EQ(flash_num_splits(1, 132, 4), 1u);
  EXPECT_GT(flash_num_splits(1, 132, 1000), 60u);
  EXPECT_LE(flash_num_splits(1, 132, 1000), 128u);
  EXPECT_EQ(flash_num_splits(66, 132, 100), 2u);
  FlashSplits remembers(132);
  for (const std::uint32_t blocks : {1U, 8U, 66U, 120U, 8U, 1U}) {
    for (const std::uint32_t steps : {1U, 4U, 5U, 50U, 127U, 128U, 129U, 1000U, 5U})
      EXPECT_EQ(remembers(blocks, steps), flash_num_splits(blocks, 132, steps)) << blocks << " " << steps;
  }
  for (const std::uint32_t multiprocessors : {4U, 78U, 132U, 264U}) {
    FlashSplits all(multiprocessors);
    for (std::uint32_t blocks = 1; blocks <= multiprocessors; ++blocks) {
      for (std::uint32_t steps = 0; steps < 140; ++steps)
        ASSERT_EQ(all(blocks, steps), flash_num_splits(blocks, multiprocessors, steps))
            << blocks << " " << steps;
    }
  }
}

// Sums over lengths, several at a time, are those of the plans of each.
TEST(Fa3, TotalsAreThoseOfTheSequences) {
  std::mt19937_64 random(9);
  FlashSplits most(132);
  for (int round = 0; round < 3000; ++round) {
    const std::uint32_t tile_n = std::array{128U, 96U, 80U, 112U, 48U, 64U}[random() % 6];
    const std::uint32_t longest = std::array{40U, 3000U, 131072U, 900000U, 30000000U}[random() % 5];
    const auto blocks = static_cast<std::uint32_t>(random() % 12 + 1);
    std::vector<std::uint32_t> lengths(random() % 90 + 1);
    std::vector<DecodeItem> items;
    for (std::uint32_t& length : lengths) {
      length = static_cast<std::uint32_t>(random() % longest);
      if (random() % 4 == 0) length = length / tile_n * tile_n;
      items.push_back({.split_tokens = length});
    }
    const bool split = flash3_split(blocks, tile_n, most, items);
    DecodeTotals totals;
    ASSERT_EQ(flash3_totals(blocks, tile_n, most, lengths, totals), split);
    DecodeTotals sum{.requests = lengths.size()};
    for (std::size_t i = 0; i < items.size(); ++i) {
      sum.tokens += lengths[i];
      sum.longest = std::max(sum.longest, lengths[i]);
      sum.parts += items[i].splits;
      sum.most_parts = std::max(sum.most_parts, items[i].splits);
      sum.longest_part = std::max(sum.longest_part, items[i].split_tokens);
    }
    ASSERT_EQ(totals.tokens, sum.tokens);
    ASSERT_EQ(totals.parts, sum.parts);
    ASSERT_EQ(totals.longest, sum.longest);
    ASSERT_EQ(totals.most_parts, sum.most_parts);
    ASSERT_EQ(totals.longest_part, sum.longest_part);
  }
}

TEST(FlashInfer, TheQueryTileFollowsThePackedLength) {
  EXPECT_EQ(backends::flashinfer_tile_q(1000, 128), 128u);
  EXPECT_EQ(backends::flashinfer_tile_q(1000, 256), 64u);
  EXPECT_EQ(backends::flashinfer_tile_q(40, 128), 64u);
  EXPECT_EQ(backends::flashinfer_tile_q(8, 128), 16u);
}

TEST(FlashInfer, TheChunkIsTheSmallestThatFitsTheDevice) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    const Batch batch = random_batch(random);
    LayerShape layer;
    layer.num_kv_heads = 1;
    layer.num_q_heads = 8;
    layer.head_dim = layer.v_head_dim = 128;
    auto backend = create_attention_backend("flashinfer", gpu(), 1);
    auto& planned = dynamic_cast<PlannedBackend&>(*backend);
    planned.init_forward_metadata(batch.metadata(proto::DECODE));
    const DecodePlan& plan = planned.decode_plan(layer);
    const auto parts = [&](std::uint64_t chunk) {
      std::uint64_t sum = 0;
      for (const std::uint32_t length : batch.decodes) sum += (length + chunk - 1) / chunk;
      return sum;
    };
    std::uint32_t chunk = 0;
    std::uint64_t splits = 0;
    for (const DecodeItem& item : plan.items) {
      chunk = std::max(chunk, item.split_tokens);
      splits += item.splits;
    }
    ASSERT_LE(splits, 2u * 132);
    if (*std::max_element(batch.decodes.begin(), batch.decodes.end()) > 128 && chunk > 128) {
      ASSERT_GT(parts(chunk - 1), 2u * 132);
    }
  }
}

TEST(FlashInfer, ACachedPrefixIsReadByAKernelOfItsOwn) {
  LayerShape layer;
  layer.num_kv_heads = 1;
  layer.num_q_heads = 8;
  layer.head_dim = layer.v_head_dim = 128;
  auto backend = create_attention_backend("flashinfer", gpu(), 1);
  auto& planned = dynamic_cast<PlannedBackend&>(*backend);
  const Batch fresh{{0, 0}, {500, 40}, {}};
  planned.init_forward_metadata(fresh.metadata(proto::EXTEND));
  EXPECT_EQ(planned.extend_plan(layer).prefix_rows, 0u);
  EXPECT_EQ(planned.forward_extend(layer).launches, 1u);
  const Batch cached{{0, 9000}, {500, 40}, {}};
  planned.init_forward_metadata(cached.metadata(proto::EXTEND));
  const ExtendPlan& plan = planned.extend_plan(layer);
  EXPECT_EQ(plan.prefix_rows, 128u);
  EXPECT_EQ(plan.prefix_tile_m, 16u);  // eight query heads are packed
  EXPECT_GT(plan.prefix_chunk, 0u);
  EXPECT_GE(planned.forward_extend(layer).launches, 3u);
}

TEST(Triton, EveryRequestGetsTheTilesOfTheLongest) {
  LayerShape layer;
  layer.num_kv_heads = 1;
  layer.num_q_heads = 8;
  layer.head_dim = layer.v_head_dim = 128;
  auto backend = create_attention_backend("triton", gpu(), 1);
  const Batch alone{{0}, {2048}, {}};
  backend->init_forward_metadata(alone.metadata(proto::EXTEND));
  const double prefill = backend->forward_extend(layer).seconds;
  const Batch mixed{{0}, {2048}, std::vector<std::uint32_t>(100, 3000)};
  backend->init_forward_metadata(mixed.metadata(proto::MIXED));
  EXPECT_GT(backend->forward_extend(layer).seconds, 20 * prefill);
}

LayerShape eight_heads(std::uint32_t kv_heads) {
  LayerShape layer;
  layer.num_q_heads = 8;
  layer.num_kv_heads = kv_heads;
  layer.head_dim = layer.v_head_dim = 128;
  return layer;
}

const DecodePlan& plan_of(AttentionBackend& backend, const LayerShape& layer,
                          const std::vector<std::uint32_t>& lengths) {
  ForwardMetadata metadata;
  metadata.forward_mode = proto::DECODE;
  metadata.decode_seq_lens = lengths;
  backend.init_forward_metadata(metadata);
  return backend.decode_plan(layer);
}

// The kernel that merges has blocks for the longest request in every request's place, where a kernel may
// split.
TEST(Fa3, MergesWithBlocksForTheLongestRequestOfAll) {
  auto backend = create_attention_backend("fa3", gpu(), 1);
  auto& planned = dynamic_cast<PlannedBackend&>(*backend);
  const Batch few{{8000, 8000, 8000}, {20, 5, 1}, {}};
  planned.init_forward_metadata(few.metadata(proto::EXTEND));
  EXPECT_EQ(planned.extend_plan(eight_heads(8)).merge_blocks, 3.0 * (20 * 8 / 8));
  const Batch chunk{{0, 8000}, {8192, 1}, {}};  // fills the device, so nothing is split
  planned.init_forward_metadata(chunk.metadata(proto::EXTEND));
  EXPECT_EQ(planned.extend_plan(eight_heads(8)).merge_blocks, 0);
  PlanCoefficients coefficients;
  ExtendPlan plan;
  plan.head_blocks = 8;
  plan.items = {{.request = 0, .prefix = 0, .q_len = 64}};
  plan.merge_blocks = 1000;
  const double free = PlanCost(gpu(), coefficients).extend(plan, eight_heads(8)).seconds;
  coefficients.merge_block_seconds = 1e-9;
  const KernelCost cost = PlanCost(gpu(), coefficients).extend(plan, eight_heads(8));
  EXPECT_NEAR(cost.seconds - free, 1e-6 + coefficients.merge_seconds, 1e-12);
  EXPECT_EQ(cost.launches, 2u);
}

// Of 132 multiprocessors that hold six blocks each; 99 requests of 8 KV heads are their 792.
TEST(Triton, BlocksThatFindNoRoomWaitForOthersToEnd) {
  auto backend = create_attention_backend("triton", gpu(), 1);
  PlanCoefficients coefficients;
  const auto seconds = [&](std::size_t requests) {
    const PlanCost cost(gpu(), coefficients);
    DecodePlan plan = plan_of(*backend, eight_heads(8), std::vector<std::uint32_t>(requests, 800));
    EXPECT_TRUE(plan.queues);
    for (DecodeItem& item : plan.items) {
      item.splits = 1;
      item.split_tokens = 800;
    }
    return cost.decode(plan, eight_heads(8)).seconds;
  };
  coefficients.block_memory = 0.1;  // a block alone is what takes the time
  coefficients.resident = 6;
  EXPECT_LT(seconds(99), 1.05 * seconds(90));
  EXPECT_GT(seconds(100), 1.7 * seconds(99));
  coefficients.resident = 1;  // nobody knows: no queue
  EXPECT_LT(seconds(100), 1.05 * seconds(99));
}

// get_num_kv_splits_triton with num_kv_head 16 and with 1, on 132 multiprocessors.
TEST(Triton, MlaIsSplitAsTheHeadsOfTheConfigSay) {
  LayerShape latent;
  latent.form = AttentionForm::kMlaAbsorbed;
  latent.num_q_heads = 16;
  latent.num_kv_heads = 1;
  latent.head_dim = 576;
  latent.v_head_dim = 512;
  LayerShape served = latent;
  served.config_kv_heads = 16;
  const auto splits = [](const LayerShape& layer, std::uint32_t requests, std::uint32_t length) {
    auto backend = create_attention_backend("triton", gpu(), 1);
    return plan_of(*backend, layer, std::vector<std::uint32_t>(requests, length)).items[0].splits;
  };
  EXPECT_EQ(splits(served, 64, 560), 1u);
  EXPECT_EQ(splits(served, 16, 1100), 3u);
  EXPECT_EQ(splits(served, 1, 1050), 33u);
  EXPECT_EQ(splits(latent, 64, 560), 6u);
  EXPECT_EQ(splits(latent, 16, 1100), 18u);
}

TEST(TrtllmMha, PartsFillTheDeviceOnceAndHaveTwoStepsAtLeast) {
  auto backend = create_attention_backend("trtllm_mha", gpu("blackwell"), 64);
  // 132 multiprocessors, 2 requests with 8 KV heads: 8 parts each, of whole steps of 128 tokens.
  const DecodePlan& two = plan_of(*backend, eight_heads(8), {4096, 1000});
  EXPECT_EQ(two.items[0].splits, 8u);
  EXPECT_EQ(two.items[0].split_tokens, 512u);
  EXPECT_EQ(two.items[1].splits, 8u);
  EXPECT_TRUE(two.merge_in_kernel);
  EXPECT_EQ(plan_of(*backend, eight_heads(1), {500}).items[0].splits, 2u);
  EXPECT_EQ(plan_of(*backend, eight_heads(1), {256}).items[0].splits, 1u);
  EXPECT_FALSE(plan_of(*backend, eight_heads(8), std::vector<std::uint32_t>(17, 4096)).merge);
  // A cluster's 16 parts are kept up to 4,096 tokens each; the query heads of a KV head share a tile.
  EXPECT_EQ(plan_of(*backend, eight_heads(1), {60000}).items[0].splits, 16u);
  EXPECT_GT(plan_of(*backend, eight_heads(1), {100000}).items[0].splits, 100u);
  EXPECT_EQ(plan_of(*backend, eight_heads(1), {100000}).rows, 8u);
}

// XQA's grid is KV heads x requests x parts; FMHA v2 tiles by head size.
TEST(TrtllmMha, OnHopperAndSm120ItsOlderKernelsServe) {
  auto backend = create_attention_backend("trtllm_mha", gpu("hopper"), 64);
  const DecodePlan& two = plan_of(*backend, eight_heads(8), {4096, 1000});
  EXPECT_EQ(two.items[0].splits, 8u);
  EXPECT_EQ(two.items[0].split_tokens, 512u);
  EXPECT_EQ(two.items[1].splits, 4u);  // steps of 256 tokens
  EXPECT_EQ(two.rows, 16u);
  EXPECT_TRUE(two.merge_in_kernel);
  LayerShape fp8 = eight_heads(8);
  fp8.kv_format = NumberFormat::kFp8E4M3;
  const DecodePlan& narrow = plan_of(*backend, fp8, {4096, 1000});
  EXPECT_EQ(narrow.items[0].splits, 6u);  // round(0.25 * (3 * 132 / 16)), steps of 64 tokens
  EXPECT_EQ(narrow.items[0].split_tokens, 704u);
  EXPECT_EQ(narrow.rows, 8u);
  const auto tiles = [&](const char* device, std::uint32_t head_dim, NumberFormat format) {
    auto of = create_attention_backend("trtllm_mha", gpu(device), 64);
    LayerShape layer = eight_heads(8);
    layer.head_dim = layer.v_head_dim = head_dim;
    layer.kv_format = format;
    const Batch batch{{0}, {1000}, {}};  // read while the backend plans
    of->init_forward_metadata(batch.metadata(proto::EXTEND));
    const ExtendPlan& plan = of->extend_plan(layer);
    return std::pair(plan.rows, plan.tile_n);
  };
  using Tiles = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(tiles("hopper", 64, NumberFormat::kBf16), Tiles(128, 256));
  EXPECT_EQ(tiles("hopper", 128, NumberFormat::kBf16), Tiles(128, 128));
  EXPECT_EQ(tiles("hopper", 256, NumberFormat::kBf16), Tiles(128, 64));
  EXPECT_EQ(tiles("hopper", 128, NumberFormat::kFp8E4M3), Tiles(128, 256));
  EXPECT_EQ(tiles("blackwell_sm120", 128, NumberFormat::kBf16), Tiles(64, 64));
  EXPECT_EQ(tiles("blackwell", 128, NumberFormat::kBf16), Tiles(256, 128));
}

TEST(Fa3, BeforeHopperItsTilesAreOthers) {
  const auto tiles = [](const char* device, std::uint32_t head_dim) {
    auto of = create_attention_backend("fa3", gpu(device), 1);
    LayerShape layer = eight_heads(8);
    layer.head_dim = layer.v_head_dim = head_dim;
    const Batch batch{{0}, {1000}, {}};  // read while the backend plans
    of->init_forward_metadata(batch.metadata(proto::EXTEND));
    const ExtendPlan& plan = of->extend_plan(layer);
    return std::pair(plan.rows, plan.tile_n);
  };
  using Tiles = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(tiles("ampere", 64), Tiles(128, 80));
  EXPECT_EQ(tiles("ampere", 128), Tiles(128, 112));
  EXPECT_EQ(tiles("ada", 256), Tiles(128, 48));
  EXPECT_EQ(tiles("hopper", 64), Tiles(192, 128));
}

TEST(Aiter, PartitionsAreOf256Tokens) {
  auto backend = create_attention_backend("aiter", gpu("rocm"), 1);
  const DecodePlan& plan = plan_of(*backend, eight_heads(1), {1025, 3});
  EXPECT_EQ(plan.items[0].splits, 5u);
  EXPECT_EQ(plan.items[1].splits, 1u);
  EXPECT_TRUE(plan.merge);
}

TEST(Ascend, CutsOnlyLongSequencesOfFewRequests) {
  proto::HardwareProfile npu = gpu("npu");
  npu.set_multiprocessors(24);
  auto backend = create_attention_backend("ascend", npu, 128);
  EXPECT_EQ(plan_of(*backend, eight_heads(8), {100000}).items[0].splits, 3u);
  EXPECT_EQ(plan_of(*backend, eight_heads(8), {1000}).items[0].splits, 1u);
  EXPECT_EQ(plan_of(*backend, eight_heads(1), {2000}).items[0].splits, 1u);  // grouped queries
  EXPECT_EQ(plan_of(*backend, eight_heads(1), {4096}).items[0].splits, 16u);
  EXPECT_EQ(plan_of(*backend, eight_heads(8), {100000, 100000}).items[0].splits, 1u);
}

TEST(IntelXpu, CutsSequencesOfMoreThan64Pages) {
  proto::HardwareProfile xpu = gpu("xpu");
  xpu.set_multiprocessors(128);
  auto backend = create_attention_backend("intel_xpu", xpu, 64);
  EXPECT_EQ(plan_of(*backend, eight_heads(8), {4096}).items[0].splits, 1u);
  EXPECT_EQ(plan_of(*backend, eight_heads(8), {8192}).items[0].splits, 16u);
}

TEST(IntelAmx, BlocksOfHeadsAreSmallForSmallBatches) {
  auto backend = create_attention_backend("intel_amx", gpu("cpu"), 1);
  const DecodePlan& one = plan_of(*backend, eight_heads(1), {800});
  EXPECT_EQ(one.rows, 4u);
  EXPECT_EQ(one.blocks_per_split, 2u);
  EXPECT_EQ(one.items[0].splits, 8u);
  EXPECT_EQ(plan_of(*backend, eight_heads(1), {800, 5}).rows, 8u);
}

TEST(Fa4, TwoTilesAtOnceAndPartsOnlyWhereTheDeviceIsNotFull) {
  auto backend = create_attention_backend("fa4", gpu("blackwell"), 128);
  auto& planned = dynamic_cast<PlannedBackend&>(*backend);
  const Batch one{{9000}, {100}, {}};
  planned.init_forward_metadata(one.metadata(proto::EXTEND));
  const ExtendPlan plan = planned.extend_plan(eight_heads(1));
  EXPECT_EQ(plan.rows, 256u);
  EXPECT_EQ(plan.tile_m, 32u);  // eight query heads are packed
  EXPECT_GT(plan.kv_chunk, 0u);
  const Batch many{std::vector<std::uint32_t>(40, 0), std::vector<std::uint32_t>(40, 4096), {}};
  planned.init_forward_metadata(many.metadata(proto::EXTEND));
  EXPECT_EQ(planned.extend_plan(eight_heads(1)).kv_chunk, 0u);
}

// Models whose values are narrower than their keys decode with it, too.
TEST(Fa4, DecodesInATileOfTheHeadsThatShareAKey) {
  auto backend = create_attention_backend("fa4", gpu("blackwell"), 128);
  const DecodePlan few = plan_of(*backend, eight_heads(1), {5});
  EXPECT_EQ(few.rows, 128u);
  EXPECT_EQ(few.blocks_per_split, 1u);
  EXPECT_FALSE(few.merge);
  const DecodePlan alone = plan_of(*backend, eight_heads(1), {9000});
  EXPECT_EQ(alone.items.front().split_tokens % 128, 0u);
  EXPECT_TRUE(alone.merge);
  EXPECT_FALSE(plan_of(*backend, eight_heads(8), std::vector<std::uint32_t>(64, 9000)).merge);
}

TEST(Fa4, IsChosenWhereValuesAreNarrowerThanKeys) {
  Selection selection{.generation = GpuGeneration::kBlackwell, .sliding_window = true, .sinks = true};
  EXPECT_EQ(choose_backend(selection).backend, "trtllm_mha");
  selection.narrow_values = true;
  EXPECT_EQ(choose_backend(selection).backend, "fa4");
  selection.generation = GpuGeneration::kHopper;
  EXPECT_EQ(choose_backend(selection).backend, "fa3");
}

TEST(FlexAttention, PaysForTheMaskOfTheWholeSequence) {
  auto backend = create_attention_backend("flex_attention", gpu(), 1);
  const Batch cached{{30000}, {10}, {}};
  backend->init_forward_metadata(cached.metadata(proto::EXTEND));
  EXPECT_GE(backend->plan_cost().bytes, 30010.0 * 30010);
  EXPECT_TRUE(backend->host_cost().synchronous);
}

// Rows of the cached prefix are computed, too, but not copied.
TEST(TorchNative, APrefillCopiesItsNewRowsAlone) {
  auto backend = create_attention_backend("torch_native", gpu(), 1);
  auto& planned = dynamic_cast<PlannedBackend&>(*backend);
  const auto bytes = [&](std::uint32_t prefix, std::uint32_t length) {
    const Batch batch{{prefix}, {length}, {}};
    planned.init_forward_metadata(batch.metadata(proto::EXTEND));
    return planned.forward_extend(eight_heads(8)).bytes;
  };
  EXPECT_NEAR(bytes(0, 4096) - bytes(4000, 96), 4000.0 * 8 * 128 * 2 * 2 * 2, 1);
}

TEST(Hybrid, RoutesByForwardMode) {
  const Batch batch{{0}, {4000}, {3000, 500}};
  LayerShape layer;
  layer.num_q_heads = 8;
  layer.num_kv_heads = 1;
  layer.head_dim = layer.v_head_dim = 128;
  auto hybrid = create_attention_backend("flashinfer+triton", gpu(), 1);
  auto prefill = create_attention_backend("flashinfer", gpu(), 1);
  auto decode = create_attention_backend("triton", gpu(), 1);
  EXPECT_EQ(hybrid->name(), "flashinfer+triton");
  for (AttentionBackend* backend : {hybrid.get(), prefill.get(), decode.get()}) {
    backend->init_forward_metadata(batch.metadata(proto::EXTEND));
  }
  EXPECT_EQ(hybrid->forward_extend(layer).seconds, prefill->forward_extend(layer).seconds);
  for (AttentionBackend* backend : {hybrid.get(), prefill.get(), decode.get()}) {
    backend->init_forward_metadata(batch.metadata(proto::DECODE));
  }
  EXPECT_EQ(hybrid->forward_decode(layer).seconds, decode->forward_decode(layer).seconds);
  EXPECT_NE(hybrid->forward_decode(layer).seconds, prefill->forward_decode(layer).seconds);
}

TEST(CudaGraph, OnlyCapturedSizesAreReplayed) {
  auto backend = create_attention_backend("fa3", gpu(), 1);
  backend->init_cuda_graph_state(8);
  backend->init_forward_metadata_capture_cuda_graph(8);
  Batch batch{{}, {}, {100, 200}};
  ForwardMetadata metadata = batch.metadata(proto::DECODE);
  metadata.capture_bucket = 8;
  EXPECT_NO_THROW(backend->init_forward_metadata_replay_cuda_graph(metadata));
  metadata.capture_bucket = 4;
  EXPECT_THROW(backend->init_forward_metadata_replay_cuda_graph(metadata), std::logic_error);
}

}  // namespace
}  // namespace tpsim::attention::plan_test
