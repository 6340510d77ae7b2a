#include "rank/model/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rank/model/hardware.h"
#include "tests/unit/model/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// By hand from SGLang's rules: MiB reserved = 512 + 1.5 x chunk + 2 x graphs + 128 x tp, at least 10 GiB on
// large GPUs; the rest is the fraction, to three digits.
TEST(Memory, DefaultsAreSglangs) {
  struct Case {
    const char* gpu;
    std::uint32_t tp, chunk, max_bs;
    double fraction;
  };
  for (const Case& c : {Case{"h200-sxm", 8, 8192, 512, 0.897}, Case{"h200-sxm", 1, 8192, 256, 0.907},
                        Case{"h100-sxm", 8, 8192, 512, 0.818}, Case{"a100-sxm", 2, 8192, 256, 0.834},
                        Case{"b200", 8, 16384, 512, 0.852}, Case{"l40s", 1, 4096, 32, 0.851}}) {
    const proto::HardwareProfile profile = load_hardware(c.gpu);
    const ServerDefaults defaults = default_server_args(profile, c.tp);
    EXPECT_EQ(defaults.chunked_prefill_size, c.chunk) << c.gpu;
    EXPECT_EQ(defaults.cuda_graph_max_bs, c.max_bs) << c.gpu;
    const double mib = profile.memory_bytes() / 1048576;
    const double rule = 512 + c.chunk * 1.5 + c.max_bs * 2 + c.tp * 128;
    const double reserved = mib > 60 * 1024 ? std::max(rule, 10240.0) : rule;
    EXPECT_NEAR(defaults.mem_fraction_static, 1 - reserved / mib, 6e-4) << c.gpu;
    EXPECT_NEAR(defaults.mem_fraction_static, c.fraction, 5e-4) << c.gpu << c.tp;
  }
}

TEST(Memory, ChunkAndGraphsEnterTheFraction) {
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  const double usual = default_server_args(profile, 8).mem_fraction_static;
  EXPECT_LT(default_server_args(profile, 8, 32768U).mem_fraction_static, usual);
  EXPECT_GT(default_server_args(profile, 8, 2048U, 8U).mem_fraction_static, usual);
}

TEST(Memory, CaptureListIsSglangs) {
  EXPECT_EQ(capture_batch_sizes(32), (std::vector<std::uint32_t>{1, 2, 4, 8, 12, 16, 24, 32}));
  EXPECT_EQ(capture_batch_sizes(3), (std::vector<std::uint32_t>{1, 2}));
  const std::vector<std::uint32_t> sizes = capture_batch_sizes(576);
  EXPECT_EQ(sizes.size(), 5U + 31 + 15 + 3);
  EXPECT_EQ(sizes.back(), 576U);
  EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
}

TEST(Memory, PoolIsWhatTheFractionLeaves) {
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  const ModelConfig model = load_model_config("llama-3.1-70b");
  const Shard shard = make_shard(model, 8, 0);
  const KvCapacity capacity = kv_capacity(profile, model, shard, 0.9, NumberFormat::kBf16, 1);
  const double used =
      static_cast<double>(capacity.tokens * capacity.kv_bytes_per_token + capacity.weight_bytes);
  EXPECT_LE(used, profile.memory_bytes() * 0.9);
  EXPECT_GE(used, profile.memory_bytes() * 0.9 - 2.0 * (1 << 30));
  // fp8 holds twice as much; pages are whole.
  const KvCapacity fp8 = kv_capacity(profile, model, shard, 0.9, NumberFormat::kFp8E4M3, 64);
  EXPECT_EQ(fp8.tokens % 64, 0U);
  EXPECT_NEAR(static_cast<double>(fp8.tokens), 2.0 * static_cast<double>(capacity.tokens), 65.0);
}

TEST(Memory, WhatDoesNotFitIsRefusedWithNumbers) {
  const ModelConfig model = load_model_config("llama-3.1-70b");
  const auto sentence =
      refusal([&] { kv_capacity(load_hardware("l40s"), model, make_shard(model, 2, 0), 0.85, NumberFormat::kBf16, 1); });
  EXPECT_THAT(sentence, AllOf(HasSubstr("llama-3.1-70b"), HasSubstr("GiB"), HasSubstr("larger --tp")));
}

TEST(Memory, RunningRequestsAreBounded) {
  EXPECT_EQ(default_max_running_requests(1000, 131072), 2048U);
  EXPECT_EQ(default_max_running_requests(100'000'000, 4096), 4096U);
  EXPECT_EQ(default_max_running_requests(3'000'000, 512), 4096U);
  EXPECT_EQ(default_max_running_requests(800'000, 131072), 3125U);
}

}  // namespace
}  // namespace tpsim::rank
