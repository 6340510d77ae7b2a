// Steps of real servers against their prices: SGLang 0.5.12 on H200s, llama-3.1-8b, default flags but the
// backend. Medians of the server's own log (`--decode-log-interval 1`): of decode steps between two others;
// of prefills, what the decode steps before and after one took longer than usual. Recorded in
// shared/data/serving.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "attention/selection/registry.h"
#include "rank/cost/hardware.h"
#include "rank/llm/memory.h"
#include "rank/llm/modeled_forward.h"

namespace tpsim::rank {
namespace {

double total(const StepCost& step) {
  return step.attention + step.gemm + step.collective + step.other + step.launch + step.host_seconds;
}

class MeasuredSteps : public ::testing::Test {
 protected:
  std::unique_ptr<ModeledForward> make(const std::string& backend, bool decode_graphs, PrefillGraphs pieces) {
    ModeledForward::Options options;
    if (decode_graphs) options.cuda_graph_bs = capture_batch_sizes(256);
    options.prefill_graphs = std::move(pieces);
    return std::make_unique<ModeledForward>(model_, profile_, make_shard(model_, 1, 0),
                                            attention::create_attention_backend(backend, profile_, 1),
                                            options);
  }
  // A decode step of `requests` requests of `kv` tokens.
  double decode(ModeledForward& forward, std::uint32_t requests, std::uint32_t kv, std::uint32_t bucket) {
    lens_.assign(requests, kv);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = proto::DECODE;
    metadata.decode_seq_lens = lens_;
    metadata.capture_bucket = bucket;
    return total(forward.forward(metadata));
  }
  double prefill(ModeledForward& forward, std::uint32_t tokens) {
    lens_.assign(1, tokens);
    prefixes_.assign(1, 0);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = proto::EXTEND;
    metadata.extend_lens = lens_;
    metadata.extend_prefix_lens = prefixes_;
    return total(forward.forward(metadata));
  }

  const proto::HardwareProfile profile_ = load_hardware("h200-sxm");
  ModelConfig model_ = load_model_config("llama-3.1-8b");
  std::vector<std::uint32_t> lens_, prefixes_;
};

// torch_native is never captured: the host issues every kernel. A length met for the first time costs the
// plan that PyTorch builds for it, whatever the batch.
TEST_F(MeasuredSteps, DecodeWithoutGraphs) {
  struct Case {
    std::uint32_t requests, kv;
    double first_ms, later_ms;
  };
  const auto forward = make("torch_native", false, {});
  for (const Case& c : {Case{1, 1088, 46.4, 16.6}, Case{16, 1056, 103.5, 74.3}, Case{8, 4112, 71.3, 43.1}}) {
    EXPECT_NEAR(1e3 * decode(*forward, c.requests, c.kv, 0) / c.first_ms, 1, 0.1) << c.requests;
    EXPECT_NEAR(1e3 * decode(*forward, c.requests, c.kv, 0) / c.later_ms, 1, 0.1) << c.requests;
  }
}

TEST_F(MeasuredSteps, DecodeWithGraphs) {
  struct Case {
    const char* backend;
    std::uint32_t requests, kv;
    double ms;
  };
  for (const Case& c : {Case{"fa3", 1, 1088, 4.84}, Case{"fa3", 16, 1152, 5.54},
                        Case{"triton", 1, 1088, 5.14}, Case{"triton", 16, 1152, 5.75}}) {
    const auto forward = make(c.backend, true, {});
    EXPECT_NEAR(1e3 * decode(*forward, c.requests, c.kv, c.requests) / c.ms, 1, 0.1) << c.backend;
  }
}

// --quantization fp8: linear layers in fp8, each with a kernel that quantises its input; the head in 16 bit.
TEST_F(MeasuredSteps, DecodeOfWeightsInFp8) {
  model_.quantization = resolve_quantization({}, "fp8");
  const auto forward = make("fa3", true, {});
  EXPECT_NEAR(1e3 * decode(*forward, 1, 1088, 1) / 3.69, 1, 0.06);
  EXPECT_NEAR(1e3 * decode(*forward, 16, 1152, 16) / 4.41, 1, 0.06);
}

// Every backend pays the host for a pass without graphs, some three times as much as for a replay.
TEST_F(MeasuredSteps, EveryBackendPaysForMissingGraphs) {
  for (const char* backend : {"fa3", "triton", "flashinfer"}) {
    const auto forward = make(backend, true, {});
    const double graph = decode(*forward, 1, 1088, 1);
    const double eager = decode(*forward, 1, 1088, 0);
    EXPECT_GT(eager, 2.5 * graph) << backend;
    EXPECT_LT(1e3 * eager, 18) << backend;
    // A batch whose device time exceeds the host's hides it.
    EXPECT_LT(decode(*forward, 256, 8000, 0), 1.02 * decode(*forward, 256, 8000, 256)) << backend;
  }
}

TEST_F(MeasuredSteps, PrefillInCapturedPieces) {
  struct Case {
    std::uint32_t tokens;
    double ms;
  };
  const auto forward = make("fa3", true, {.tokens = capture_prefill_tokens(8192)});
  for (const Case& c : {Case{2, 5.0}, Case{91, 5.8}, Case{203, 6.9}, Case{394, 11.2}, Case{1000, 21.3},
                        Case{1060, 26.1}, Case{1313, 31.6}, Case{2548, 56.1}, Case{4085, 88}}) {
    EXPECT_NEAR(1e3 * prefill(*forward, c.tokens) / c.ms, 1, 0.16) << c.tokens;
  }
  // Padded to the next captured size, as the measured step from 1,019 to 1,029 tokens shows.
  EXPECT_GT(prefill(*forward, 1029), 1.15 * prefill(*forward, 1019));
}

TEST_F(MeasuredSteps, EagerPrefillIsBoundByTheHostUntilTheDeviceIsSlower) {
  const auto pieces = make("fa3", true, {.tokens = capture_prefill_tokens(8192)});
  const auto eager = make("fa3", true, {});
  EXPECT_GT(prefill(*eager, 100), 2 * prefill(*pieces, 100));
  EXPECT_DOUBLE_EQ(prefill(*eager, 100), prefill(*eager, 200));
  EXPECT_NEAR(prefill(*eager, 8192), prefill(*pieces, 8192), 1e-9);
  EXPECT_EQ(prefill(*eager, 8193), prefill(*pieces, 8193));  // beyond the largest captured size
}

// deepseek-v2-lite with dummy weights, whose router sends every token to the same experts: absorbed decode.
TEST(MeasuredMlaSteps, DecodeWithGraphs) {
  struct Case {
    const char* backend;
    std::uint32_t requests, kv;
    double ms;
  };
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  const ModelConfig model = load_model_config("deepseek-v2-lite");
  ASSERT_TRUE(dummy_weights_share_experts(model, false));
  for (const Case& c :
       {Case{"fa3", 1, 1088, 3.525}, Case{"fa3", 8, 1090, 3.722}, Case{"fa3", 16, 1152, 3.857},
        Case{"fa3", 32, 4224, 5.119}, Case{"fa3", 64, 560, 5.266}, Case{"fa3", 96, 560, 5.545},
        Case{"fa3", 128, 640, 5.609}, Case{"flashmla", 1, 1088, 3.71}, Case{"flashmla", 16, 1152, 4.084},
        Case{"flashmla", 64, 1152, 5.749}, Case{"triton", 1, 1090, 3.94}, Case{"triton", 16, 1149, 5.04},
        Case{"triton", 64, 576, 7.112}}) {
    ModeledForward forward(model, profile, make_shard(model, 1, 0),
                           attention::create_attention_backend(c.backend, profile, 64),
                           {.cuda_graph_bs = capture_batch_sizes(256), .experts_in_use = model.moe.top_k});
    const std::vector<std::uint32_t> lens(c.requests, c.kv);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = proto::DECODE;
    metadata.decode_seq_lens = lens;
    metadata.capture_bucket = c.requests;
    EXPECT_NEAR(1e3 * total(forward.forward(metadata)) / c.ms, 1, 0.12) << c.backend << " " << c.requests;
  }
}

// gpt-oss-20b with dummy weights: every token at the same four experts. Decode steps: medians of the server's
// log. Prefills of several prompts: time between the first tokens of two that follow each other.
class MeasuredGptOss : public ::testing::Test {
 protected:
  double ms(proto::ForwardMode mode, std::uint32_t requests, std::uint32_t tokens) {
    const std::vector<std::uint32_t> lens(requests, tokens), none(requests, 0);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = mode;
    if (mode == proto::DECODE) {
      metadata.decode_seq_lens = lens;
      metadata.capture_bucket = requests;
    } else {
      metadata.extend_lens = lens;
      metadata.extend_prefix_lens = none;
    }
    return 1e3 * total(forward_.forward(metadata));
  }

  const proto::HardwareProfile profile_ = load_hardware("h200-sxm");
  const ModelConfig model_ = load_model_config("gpt-oss-20b");
  ModeledForward forward_{model_,
                          profile_,
                          make_shard(model_, 1, 0),
                          attention::create_attention_backend("fa3", profile_, 1),
                          {.cuda_graph_bs = capture_batch_sizes(256),
                           .prefill_graphs = {.tokens = capture_prefill_tokens(8192)},
                           .experts_in_use = model_.moe.top_k}};
};

TEST_F(MeasuredGptOss, Decode) {
  ASSERT_TRUE(dummy_weights_share_experts(model_, false));
  struct Case {
    std::uint32_t requests, kv;
    double ms;
  };
  for (const Case& c :
       {Case{1, 1120, 3.539}, Case{2, 1297, 3.621}, Case{4, 1063, 4.000}, Case{8, 1145, 4.055},
        Case{12, 1137, 4.145}, Case{16, 1152, 4.147}, Case{32, 625, 4.299}, Case{32, 1132, 4.398},
        Case{32, 4251, 4.975}, Case{128, 516, 6.674}, Case{128, 744, 6.818}}) {
    EXPECT_NEAR(ms(proto::DECODE, c.requests, c.kv) / c.ms, 1, 0.06) << c.requests << " of " << c.kv;
  }
}

TEST_F(MeasuredGptOss, Prefill) {
  struct Case {
    std::uint32_t requests, tokens;
    double ms;
  };
  for (const Case& c : {Case{4, 1024, 48.2}, Case{1, 4096, 55.4}, Case{16, 512, 101.6}, Case{8, 1024, 102.9},
                        Case{2, 4096, 106.8}}) {
    EXPECT_NEAR(ms(proto::EXTEND, c.requests, c.tokens) / c.ms, 1, 0.12) << c.requests << " of " << c.tokens;
  }
}

// One family a row, of sixteen servers with dummy weights: medians of decode steps of 1, 16 and 64 requests
// (tests/calibration/measured/h200-sxm_servers/sixth).
TEST(MeasuredFamilies, Decode) {
  struct Case {
    const char* model;
    double ms[3];
  };
  const proto::HardwareProfile profile = load_hardware("h200-sxm");
  for (const Case& c :
       {Case{"ernie-4.5-21b-a3b", {3.57, 10.30, 13.48}}, Case{"gemma-3-12b", {13.23, 16.47, 22.03}},
        Case{"phi-4", {8.57, 9.82, 12.62}}, Case{"qwen3-32b", {18.04, 19.24, 23.79}}}) {
    const ModelConfig model = load_model_config(c.model);
    const bool shared = dummy_weights_share_experts(model, false);
    ModeledForward forward(
        model, profile, make_shard(model, 1, 0), attention::create_attention_backend("fa3", profile, 1),
        {.cuda_graph_bs = capture_batch_sizes(64), .experts_in_use = shared ? model.moe.top_k : 0});
    const std::uint32_t requests[] = {1, 16, 64};
    for (int i = 0; i < 3; ++i) {
      const std::vector<std::uint32_t> lens(requests[i], 1120);
      attention::ForwardMetadata metadata;
      metadata.forward_mode = proto::DECODE;
      metadata.decode_seq_lens = lens;
      metadata.capture_bucket = requests[i];
      EXPECT_NEAR(1e3 * total(forward.forward(metadata)) / c.ms[i], 1, 0.1) << c.model << " " << requests[i];
    }
  }
  // Kernels of a prefill of 8,000 tokens, profiled: 190 ms, of which Mamba 2 and its norm take 68.
  const ModelConfig nemotron = load_model_config("nemotron-3-nano-30b-a3b");
  ModeledForward forward(nemotron, profile, make_shard(nemotron, 1, 0),
                         attention::create_attention_backend("fa3", profile, 1),
                         {.cuda_graph_bs = {1},
                          .prefill_graphs = {.tokens = capture_prefill_tokens(8192)},
                          .experts_in_use = nemotron.moe.top_k});
  const std::vector<std::uint32_t> tokens = {8000}, none = {0};
  attention::ForwardMetadata metadata;
  metadata.forward_mode = proto::EXTEND;
  metadata.extend_lens = tokens;
  metadata.extend_prefix_lens = none;
  EXPECT_NEAR(1e3 * total(forward.forward(metadata)) / 190, 1, 0.1);
  // Its norms hand on what outweighs the bias of its router.
  EXPECT_FALSE(dummy_weights_share_experts(load_model_config("step-3.5-flash"), false));
}

TEST(PrefillGraphs, BucketsAreSglangs) {
  PrefillGraphs graphs{.tokens = capture_prefill_tokens(8192)};
  EXPECT_EQ(graphs.tokens.size(), 58U);
  EXPECT_EQ(graphs.tokens.back(), 8192U);
  EXPECT_EQ(graphs.bucket(1), 0U);  // four tokens would be more than twice as many
  EXPECT_EQ(graphs.bucket(2), 4U);
  EXPECT_EQ(graphs.bucket(4), 4U);
  EXPECT_EQ(graphs.bucket(33), 48U);
  EXPECT_EQ(graphs.bucket(1025), 1280U);
  EXPECT_EQ(graphs.bucket(8192), 8192U);
  EXPECT_EQ(graphs.bucket(8193), 0U);
  EXPECT_EQ(PrefillGraphs{}.bucket(5), 0U);
  EXPECT_EQ(capture_prefill_tokens(100),
            (std::vector<std::uint32_t>{4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96}));
  EXPECT_TRUE(capture_prefill_tokens(0).empty());
}

}  // namespace
}  // namespace tpsim::rank
