// MLA: which form an extend takes, how decode kernels cut the latents, and what they read. Prices against
// measured kernels: mla_calibration_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/mla_extend.h"
#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "launch/lab/kernels/attention_rows.h"
#include "rank/cost/hardware.h"
#include "tests/unit/attention/gpu.h"

namespace tpsim::attention::mla_test {
namespace {

using tpsim::testing::gpu;

LayerShape absorbed(std::uint32_t heads) {
  return kernels::mla_layer(kernels::AttentionKernel::kMlaDecode, heads);
}
LayerShape expanded(std::uint32_t heads) {
  return kernels::mla_layer(kernels::AttentionKernel::kMlaPrefill, heads);
}

// Those that decode, too.
std::vector<const BackendDescription*> mla_backends() {
  std::vector<const BackendDescription*> backends;
  for (const BackendDescription* backend : backend_list()) {
    if (backend->row.has_mla && !backend->row.prefill_only) backends.push_back(backend);
  }
  return backends;
}

MlaForwardMethod method(const std::string& backend, const std::vector<std::uint32_t>& prefixes,
                        const std::vector<std::uint32_t>& lengths, const MlaOptions& options = {},
                        bool in_pieces = false) {
  auto made = create_attention_backend(backend, gpu(), 64);
  made->set_mla_options(options);
  ForwardMetadata metadata;
  metadata.forward_mode = proto::EXTEND;
  metadata.extend_prefix_lens = prefixes;
  metadata.extend_lens = lengths;
  metadata.in_pieces = in_pieces;
  made->init_forward_metadata(metadata);
  return made->mla_extend().method;
}

// SGLang's attention_backend_handler.py, row by row.
TEST(MlaExtend, EachBackendTakesItsHandlersForm) {
  constexpr auto kAbsorbed = MlaForwardMethod::kAbsorbed;
  constexpr auto kMha = MlaForwardMethod::kMha;
  constexpr auto kOneShot = MlaForwardMethod::kMhaOneShot;
  constexpr auto kChunked = MlaForwardMethod::kMhaChunkedKv;
  struct Row {
    const char* backend;
    MlaForwardMethod fresh, short_prefix, threshold, beyond_capacity, disabled;
  };
  for (const Row& row : {Row{"fa3", kMha, kAbsorbed, kOneShot, kChunked, kAbsorbed},
                         Row{"flashinfer", kMha, kAbsorbed, kOneShot, kChunked, kAbsorbed},
                         Row{"flashmla", kMha, kAbsorbed, kOneShot, kChunked, kAbsorbed},
                         Row{"cutlass_mla", kMha, kAbsorbed, kChunked, kChunked, kAbsorbed},
                         Row{"trtllm_mla", kMha, kChunked, kChunked, kChunked, kAbsorbed},
                         Row{"triton", kMha, kAbsorbed, kAbsorbed, kAbsorbed, kAbsorbed}}) {
    EXPECT_EQ(method(row.backend, {0, 0}, {4000, 30000}), row.fresh) << row.backend;
    EXPECT_EQ(method(row.backend, {0, 8191}, {4000, 3}), row.short_prefix) << row.backend;
    EXPECT_EQ(method(row.backend, {8000, 192}, {4000, 3}), row.threshold) << row.backend;
    EXPECT_EQ(method(row.backend, {131000, 0}, {73, 0}), row.beyond_capacity) << row.backend;
    EXPECT_EQ(method(row.backend, {131000, 0}, {72, 0}), row.threshold) << row.backend;
    EXPECT_EQ(method(row.backend, {131000, 0}, {73, 0}, {.chunked_prefix_cache = false}), row.disabled)
        << row.backend;
    EXPECT_EQ(method(row.backend, {0}, {900}, {}, /*in_pieces=*/true), kAbsorbed) << row.backend;
  }
  EXPECT_EQ(method("flashinfer", {0}, {900}, {.ragged = false}), kAbsorbed);
  EXPECT_EQ(method("flashmla", {0}, {900}, {.ragged = false}), kAbsorbed);
  EXPECT_EQ(method("fa3", {0}, {900}, {.ragged = false}), kMha);
}

TEST(MlaExtend, AMixedBatchCountsWhatItsDecodesHaveCached) {
  const std::vector<std::uint32_t> prefixes = {0}, lengths = {100}, decodes = {8000, 193};
  ForwardMetadata metadata;
  metadata.forward_mode = proto::MIXED;
  metadata.extend_prefix_lens = prefixes;
  metadata.extend_lens = lengths;
  metadata.decode_seq_lens = decodes;
  const MlaRule rule = {.prefix = MlaPrefix::kFromThreshold};
  EXPECT_EQ(mla_extend(rule, {}, metadata).method, MlaForwardMethod::kAbsorbed);
  EXPECT_EQ(mla_extend(rule, {.chunked_prefix_cache_threshold = 8191}, metadata).chunk_tokens, 131072U / 3);
}

TEST(MlaPlans, DecodePartsCoverEveryLatentOnce) {
  std::mt19937_64 random(3);
  for (const BackendDescription* backend : mla_backends()) {
    if (backend->row.prefill_only) continue;
    for (int round = 0; round < 200; ++round) {
      std::vector<std::uint32_t> lengths(1 + random() % 200);
      for (std::uint32_t& length : lengths)
        length = static_cast<std::uint32_t>(1 + random() % (random() % 3 == 0   ? 70
                                                            : random() % 3 == 0 ? 900
                                                                                : 60000));
      const LayerShape layer = absorbed(1U << random() % 8);
      auto made = create_attention_backend(std::string(backend->row.name), gpu(), 64);
      auto& planned = dynamic_cast<PlannedBackend&>(*made);
      ForwardMetadata metadata;
      metadata.forward_mode = proto::DECODE;
      metadata.decode_seq_lens = lengths;
      planned.init_forward_metadata(metadata);
      const DecodePlan& plan = planned.decode_plan(layer);
      ASSERT_EQ(plan.items.size(), lengths.size()) << backend->row.name;
      // Every head is in a row of some block.
      ASSERT_GE(plan.rows * plan.blocks_per_split, layer.num_q_heads) << backend->row.name;
      for (std::uint32_t i = 0; i < lengths.size(); ++i) {
        const DecodeItem& item = plan.items[i];
        ASSERT_EQ(item.request, i);
        ASSERT_EQ(item.kv_begin, 0U);
        ASSERT_EQ(item.kv_end, lengths[i]);
        const std::uint64_t rest = lengths[i] - item.first_tokens;
        const std::uint64_t parts = item.splits - (item.first_tokens > 0 ? 1 : 0);
        ASSERT_LT(item.first_tokens, lengths[i]);
        ASSERT_GE(parts * item.split_tokens, rest) << backend->row.name;
        ASSERT_LT((parts - 1) * item.split_tokens, rest) << backend->row.name;
        if (item.splits > 1) {
          ASSERT_TRUE(plan.merge);
        }
      }
    }
  }
}

// The planner's runs, walked again: no run holds more than its payload, and there are as many as blocks.
TEST(MlaPlans, FlashMlaFillsItsRunsEvenly) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint32_t> lengths(1 + random() % 300);
    for (std::uint32_t& length : lengths)
      length = static_cast<std::uint32_t>(1 + random() % (random() % 2 == 0 ? 500 : 30000));
    ForwardMetadata metadata;
    metadata.forward_mode = proto::DECODE;
    metadata.decode_seq_lens = lengths;
    const auto backend = create_attention_backend("flashmla", gpu(), 64);
    backend->init_forward_metadata(metadata);
    const DecodePlan& plan = backend->decode_plan(absorbed(128));
    EXPECT_EQ(plan.blocks_per_split, 2U);
    const std::uint64_t payload = plan.busiest_block / 64;
    std::uint64_t runs = 1, load = 0, blocks = 0;
    for (const DecodeItem& item : plan.items) {
      std::uint64_t left = item.kv_end;
      for (std::uint32_t part = 0; part < item.splits; ++part) {
        const std::uint64_t tokens = std::min<std::uint64_t>(
            left, part == 0 && item.first_tokens > 0 ? item.first_tokens : item.split_tokens);
        const std::uint64_t cost = (tokens + 63) / 64 + 5;
        if (load + cost > payload) {
          ++runs;
          load = 0;
        }
        load += cost;
        ASSERT_LE(load, payload);
        left -= tokens;
        if (part + 1 < item.splits) {
          ASSERT_EQ(tokens % 64, 0U);
        }
      }
      ASSERT_EQ(left, 0U);
      blocks += (item.kv_end + 63) / 64;
    }
    ASSERT_LE(runs, 66U);
    ASSERT_LE(blocks, 66 * payload);
  }
}

// 576 elements a token are stored, and read once; a value is no second read.
TEST(MlaCost, DecodeReadsTheLatentOnce) {
  const std::vector<std::uint32_t> lengths(64, 8000);
  ForwardMetadata metadata;
  metadata.forward_mode = proto::DECODE;
  metadata.decode_seq_lens = lengths;
  for (const BackendDescription* backend : mla_backends()) {
    if (backend->row.prefill_only) continue;
    auto made = create_attention_backend(std::string(backend->row.name), gpu(), 64);
    made->init_forward_metadata(metadata);
    const KernelCost cost = made->forward_decode(absorbed(16));
    const double stored = 64.0 * 8000 * 1152;
    EXPECT_GE(cost.bytes, stored) << backend->row.name;
    EXPECT_LE(cost.bytes, stored * 1.2) << backend->row.name;  // parts are written, and read to be merged
    EXPECT_GE(cost.seconds, stored / 4e12) << backend->row.name;
    if (backend->row.mla_fp8 == Support::kNo) continue;
    LayerShape fp8 = absorbed(16);
    fp8.kv_format = NumberFormat::kFp8E4M3;
    EXPECT_LE(made->forward_decode(fp8).bytes, stored * 0.6) << backend->row.name;
  }
}

// A long prompt is cheaper expanded, a long prefix with few new tokens is not dearer in chunks than in one.
TEST(MlaCost, TheFormsDifferAsTheirArithmeticDoes) {
  auto backend = create_attention_backend("fa3", gpu(), 1);
  const std::vector<std::uint32_t> fresh = {0}, prompt = {8192};
  ForwardMetadata metadata;
  metadata.forward_mode = proto::EXTEND;
  metadata.extend_prefix_lens = fresh;
  metadata.extend_lens = prompt;
  backend->init_forward_metadata(metadata);
  const KernelCost wide = backend->forward_extend(absorbed(16));
  const KernelCost narrow = backend->forward_extend(expanded(16));
  EXPECT_GT(wide.flops, 3 * narrow.flops);
  EXPECT_GT(wide.seconds, 2 * narrow.seconds);
  EXPECT_NEAR(narrow.flops / (8192.0 * 8192 * 16 * 320), 1, 0.05);  // half the square, two products

  const std::vector<std::uint32_t> prefixes = {100000, 0, 60000}, lengths = {512, 700, 300};
  metadata.extend_prefix_lens = prefixes;
  metadata.extend_lens = lengths;
  const auto price = [&](std::uint32_t capacity) {
    backend->set_mla_options({.max_kv_chunk_capacity = capacity});
    backend->init_forward_metadata(metadata);
    return backend->forward_extend(expanded(16));
  };
  const KernelCost once = price(200000);
  const KernelCost twice = price(150000);
  const KernelCost often = price(30000);
  EXPECT_EQ(once.launches, 1U);
  EXPECT_EQ(twice.launches, 1U + 2 * 2);
  EXPECT_EQ(often.launches, 1U + 2 * 10);
  EXPECT_GT(twice.seconds, once.seconds);
  EXPECT_GT(often.seconds, twice.seconds);
  EXPECT_LT(often.seconds, 2 * once.seconds);
}

}  // namespace
}  // namespace tpsim::attention::mla_test
