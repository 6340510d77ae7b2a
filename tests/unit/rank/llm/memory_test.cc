#include "rank/llm/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "rank/cost/hardware.h"
#include "rank/llm/graph_capture.h"
#include "rank/llm/layers.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double fraction(const proto::HardwareProfile& profile, std::uint32_t tp, bool mla = false) {
  const BatchDefaults defaults = default_batches(profile, tp, false);
  const auto pieces =
      static_cast<std::uint32_t>(capture_prefill_tokens(defaults.chunked_prefill_size).size());
  return default_mem_fraction(profile, {.tp_size = tp,
                                        .activation_tokens = defaults.chunked_prefill_size,
                                        .cuda_graph_max_bs = defaults.cuda_graph_max_bs,
                                        .prefill_captures = default_graphs(profile).prefill ? pieces : 0,
                                        .mla = mla});
}

// mem_fraction_static as real SGLang 0.5.12 servers on H200s report it (shared/data/serving/servers.jsonl).
TEST(Memory, FractionsAreThoseOfRealServers) {
  const proto::HardwareProfile h200 = load_hardware("h200-sxm");
  EXPECT_DOUBLE_EQ(fraction(h200, 1), 0.903);        // llama-3.1-8b
  EXPECT_DOUBLE_EQ(fraction(h200, 2), 0.902);        // qwen3-30b-a3b
  EXPECT_DOUBLE_EQ(fraction(h200, 4), 0.897);        // llama-3.1-70b
  EXPECT_DOUBLE_EQ(fraction(h200, 1, true), 0.896);  // deepseek-v2-lite
}

struct DeviceCase {
  const char* device;
  std::uint32_t tp;
  bool newer;  // than 0.5.14
  std::uint32_t chunk, max_bs;
};

// By hand from SGLang's classes of memory: every device of the catalogue.
TEST(Memory, BatchesAreSglangs) {
  const DeviceCase kCases[] = {
      {"t4", 1, true, 2048, 8},           {"t4", 8, false, 2048, 8},
      {"a10", 1, true, 4096, 48},         {"a10", 4, true, 4096, 160},
      {"a10", 1, false, 2048, 24},        {"a10", 4, false, 2048, 80},
      {"l4", 2, true, 4096, 48},          {"rtx-4090", 8, false, 2048, 80},
      {"l40s", 1, true, 4096, 32},        {"l40s", 4, false, 4096, 160},
      {"a100-sxm", 2, true, 8192, 256},   {"a100-pcie", 4, true, 8192, 512},
      {"h100-pcie", 1, true, 8192, 256},  {"h100-sxm", 8, true, 8192, 512},
      {"h20", 1, true, 8192, 256},        {"gh200", 4, true, 8192, 512},
      {"h200-sxm", 8, true, 8192, 512},   {"rtx-pro-6000", 1, true, 8192, 256},
      {"b200", 1, true, 16384, 512},      {"gb200", 4, true, 16384, 512},
      {"b300", 8, true, 16384, 512},      {"mi300x", 1, true, 16384, 512},
      {"mi325x", 8, true, 16384, 512},    {"mi355x", 8, true, 16384, 512},
      {"gb300", 4, true, 16384, 512},     {"mi350x", 8, true, 16384, 512},
      {"ascend-910b", 1, true, 8192, 64}, {"ascend-910b", 8, true, 8192, 256},
      {"max-1550", 1, true, 8192, 256},   {"xeon-amx", 1, true, 16384, 512},
  };
  std::set<std::string> seen;
  for (const DeviceCase& c : kCases) {
    const BatchDefaults defaults = default_batches(load_hardware(c.device), c.tp, c.newer);
    EXPECT_EQ(defaults.chunked_prefill_size, c.chunk) << c.device << " " << c.tp;
    EXPECT_EQ(defaults.cuda_graph_max_bs, c.max_bs) << c.device << " " << c.tp;
    seen.insert(c.device);
  }
  for (const std::string& name : hardware_catalogue()) EXPECT_TRUE(seen.contains(name)) << name;
}

TEST(Memory, WhatIsKeptFreeEntersTheFraction) {
  for (const std::string& name : hardware_catalogue()) {
    const proto::HardwareProfile profile = load_hardware(name);
    const MemoryReserve usual = {.tp_size = 8, .activation_tokens = 16384, .cuda_graph_max_bs = 64};
    const double mib = profile.memory_bytes() / 1048576;
    const double by_hand = 512 + 16384 * 1.5 + 64 * 2 + 1024 + (name == "max-1550" ? 2048 : 0);
    EXPECT_NEAR(default_mem_fraction(profile, usual), 1 - by_hand / mib, 6e-4) << name;
    MemoryReserve more = usual;
    more.activation_tokens = 65536;
    EXPECT_LT(default_mem_fraction(profile, more), default_mem_fraction(profile, usual)) << name;
    more = usual;
    more.prefill_captures = 50;
    EXPECT_NEAR(default_mem_fraction(profile, more), 1 - (by_hand + 400) / mib, 6e-4) << name;
  }
}

TEST(Memory, CaptureListIsSglangs) {
  EXPECT_EQ(capture_batch_sizes(32), (std::vector<std::uint32_t>{1, 2, 4, 8, 12, 16, 24, 32}));
  EXPECT_EQ(capture_batch_sizes(3), (std::vector<std::uint32_t>{1, 2, 3}));
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
  EXPECT_GE(used, profile.memory_bytes() * 0.9 - 3.0 * (1 << 30));
  // fp8 holds twice as much; pages are whole.
  const KvCapacity fp8 = kv_capacity(profile, model, shard, 0.9, NumberFormat::kFp8E4M3, 64);
  EXPECT_EQ(fp8.tokens % 64, 0U);
  EXPECT_NEAR(static_cast<double>(fp8.tokens), 2.0 * static_cast<double>(capacity.tokens), 65.0);
}

// Pools that real servers reported at start: SGLang 0.5.12 on H200s (shared/data/serving/servers.jsonl), and
// two of public logs, DeepSeek-R1 on eight H200s and Qwen3-235B-A22B-FP8 on four H100s.
TEST(Memory, PoolsAreThoseOfRealServers) {
  struct Server {
    const char* model;
    const char* gpu;
    std::uint32_t tp;
    double fraction;
    double tokens;
    double within;
  };
  const Server kServers[] = {
      {"llama-3.1-8b", "h200-sxm", 1, 0.903, 906051, 0.002},
      {"llama-3.1-70b", "h200-sxm", 4, 0.897, 1191000, 0.002},
      {"qwen3-30b-a3b", "h200-sxm", 2, 0.902, 2100301, 0.002},
      {"deepseek-v2-lite", "h200-sxm", 1, 0.896, 3282893, 0.005},
      {"deepseek-r1", "h200-sxm", 8, 0.82, 509000, 0.01},
      {"Qwen/Qwen3-235B-A22B-FP8", "h100-sxm", 4, 0.93, 367404, 0.02},
  };
  for (const Server& server : kServers) {
    const ModelConfig model = load_model_config(server.model);
    const KvCapacity capacity = kv_capacity(load_hardware(server.gpu), model, make_shard(model, server.tp, 0),
                                            server.fraction, NumberFormat::kBf16, 1);
    EXPECT_NEAR(static_cast<double>(capacity.tokens) / server.tokens, 1, server.within) << server.model;
  }
}

// Each layer keeps a latent and, where it has an indexer, an index key of 132 bytes (DSATokenToKVPool).
TEST(Memory, SparseAttentionKeepsIndexKeysToo) {
  const auto bytes = [](const char* name, NumberFormat format, std::uint32_t token) {
    const ModelConfig model = load_model_config(name);
    return kv_bytes_per_token(model, make_shard(model, 8, 0), format, token);
  };
  EXPECT_EQ(bytes("deepseek-v3.2", NumberFormat::kBf16, 0), 61U * (1152 + 132));
  EXPECT_EQ(bytes("deepseek-v3.2", NumberFormat::kFp8E4M3, 656), 61U * (656 + 132));
  EXPECT_EQ(bytes("glm-5", NumberFormat::kFp8E4M3, 576), 78U * (576 + 132));
  // A layer that takes the selection of another keeps no keys.
  ModelConfig model = load_model_config("glm-5");
  ASSERT_EQ(model.attention.size(), 1U);
  model.attention = {{58, 0, false, 0, 0, {}}, {20, 0, true, 0, 0, {}}};
  EXPECT_EQ(kv_bytes_per_token(model, make_shard(model, 8, 0), NumberFormat::kBf16), 78U * 1152 + 20 * 132);
}

TEST(Memory, WhatDoesNotFitIsRefusedWithNumbers) {
  const ModelConfig model = load_model_config("llama-3.1-70b");
  const auto sentence = refusal([&] {
    kv_capacity(load_hardware("l40s"), model, make_shard(model, 2, 0), 0.85, NumberFormat::kBf16, 1);
  });
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
