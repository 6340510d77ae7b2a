#include "rank/llm/modeled_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "rank/cost/hardware.h"
#include "rank/llm/memory.h"
#include "tests/unit/rank/llm/count_allocations.h"

namespace tpsim::rank {
namespace {

// One microsecond a layer for extend, two for decode, one launch each.
class FakeBackend : public attention::AttentionBackend {
 public:
  struct Calls {
    int eager = 0, replay = 0, extend = 0, decode = 0;
    std::uint32_t max_bs = 0;
    std::vector<std::uint32_t> captured;
    attention::LayerShape layer;
  };
  explicit FakeBackend(Calls* calls) : calls_(calls) {}
  std::string_view name() const override { return "fake"; }
  void init_cuda_graph_state(std::uint32_t max_bs) override { calls_->max_bs = max_bs; }
  void init_forward_metadata_capture_cuda_graph(std::uint32_t bs) override { calls_->captured.push_back(bs); }
  void init_forward_metadata_replay_cuda_graph(const attention::ForwardMetadata&) override {
    ++calls_->replay;
  }
  void init_forward_metadata(const attention::ForwardMetadata&) override { ++calls_->eager; }
  KernelCost forward_extend(const attention::LayerShape& layer) override {
    ++calls_->extend;
    calls_->layer = layer;
    return {1e-6, 100, 10, 1};
  }
  KernelCost forward_decode(const attention::LayerShape& layer) override {
    ++calls_->decode;
    calls_->layer = layer;
    return {2e-6, 100, 10, 1};
  }
  KernelCost plan_cost() const override { return {3e-6, 0, 0, 1}; }
  double plan_host_seconds() const override { return 4e-5; }

 private:
  Calls* calls_;
};

class ModeledForwardTest : public ::testing::Test {
 protected:
  ModeledForward make(const std::string& model, std::uint32_t tp, std::vector<std::uint32_t> graphs) {
    config_ = load_model_config(model);
    shard_ = make_shard(config_, tp, 0);
    return ModeledForward(config_, profile_, shard_, std::make_unique<FakeBackend>(&calls_),
                          {.kv_format = NumberFormat::kFp8E4M3, .cuda_graph_bs = std::move(graphs)});
  }
  attention::ForwardMetadata decode(std::uint32_t requests, std::uint32_t bucket) {
    lens_.assign(requests, 1000);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = proto::DECODE;
    metadata.decode_seq_lens = lens_;
    metadata.capture_bucket = bucket;
    return metadata;
  }
  attention::ForwardMetadata extend(std::uint32_t tokens) {
    extend_lens_.assign(1, tokens);
    prefix_lens_.assign(1, 0);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = proto::EXTEND;
    metadata.extend_lens = extend_lens_;
    metadata.extend_prefix_lens = prefix_lens_;
    return metadata;
  }

  const proto::HardwareProfile profile_ = load_hardware("h200-sxm");
  ModelConfig config_;
  Shard shard_;
  FakeBackend::Calls calls_;
  std::vector<std::uint32_t> lens_, extend_lens_, prefix_lens_;
};

TEST_F(ModeledForwardTest, IdleCostsNothing) {
  ModeledForward forward = make("llama-3.1-8b", 1, {});
  EXPECT_EQ(forward.forward({}), StepCost{});
}

TEST_F(ModeledForwardTest, CaptureAndShapesReachTheBackend) {
  ModeledForward forward = make("llama-3.1-70b", 8, {1, 2, 4});
  EXPECT_EQ(calls_.max_bs, 4U);
  EXPECT_EQ(calls_.captured, (std::vector<std::uint32_t>{1, 2, 4}));
  const StepCost step = forward.forward(decode(3, 4));
  EXPECT_EQ(calls_.replay, 1);
  EXPECT_EQ(calls_.eager, 0);
  EXPECT_EQ(calls_.decode, 1);  // once per kind of layer
  EXPECT_EQ(calls_.layer.num_q_heads, 8U);
  EXPECT_EQ(calls_.layer.num_kv_heads, 1U);
  EXPECT_EQ(calls_.layer.kv_format, NumberFormat::kFp8E4M3);
  EXPECT_NEAR(step.attention, 80 * 2e-6 + 3e-6, 1e-12);
  EXPECT_EQ(step.host_seconds, 4e-5);
}

TEST_F(ModeledForwardTest, CapturedDecodeIsPaddedToItsBucket) {
  ModeledForward forward = make("llama-3.1-8b", 2, {1, 8, 64});
  EXPECT_EQ(forward.forward(decode(5, 8)), forward.forward(decode(8, 8)));
  EXPECT_EQ(forward.forward(decode(33, 64)).gemm, forward.forward(decode(64, 64)).gemm);
}

TEST_F(ModeledForwardTest, EagerDecodeOfSmallShardsIsBoundByLaunches) {
  ModeledForward forward = make("llama-3.1-8b", 8, {1});
  const auto total = [](const StepCost& step) {
    return step.attention + step.gemm + step.collective + step.other + step.launch;
  };
  const StepCost graph = forward.forward(decode(1, 1));
  const StepCost eager = forward.forward(decode(1, 0));
  EXPECT_EQ(eager.gemm, graph.gemm);
  EXPECT_GT(eager.launch, 0);
  // The graph's own launch apart, eager is never faster.
  EXPECT_GE(total(eager), total(graph) - profile_.graph_replay_seconds());
  // A long prefill hides its launches, but for the gaps between kernels.
  const StepCost prefill = forward.forward(extend(16384));
  EXPECT_LT(prefill.launch, 0.02 * total(prefill));
}

// The scheduler's thread issues an eager pass kernel by kernel, one in captured pieces piece by piece, which
// NCCL's all-reduces split, and a captured one at once.
TEST_F(ModeledForwardTest, TheHostIssuesWhatIsNotCaptured) {
  ModeledForward forward = make("llama-3.1-8b", 1, {1});
  const StepCost graph = forward.forward(decode(1, 1)), eager = forward.forward(decode(1, 0));
  EXPECT_EQ(graph.launches, 1);
  EXPECT_EQ(graph.issue_seconds, 0);
  // Four kernels take the queue's place of one piece.
  const double kernels = eager.issue_seconds / profile_.kernel_launch_seconds();
  EXPECT_GE(kernels, 32 * 9);
  EXPECT_NEAR(eager.launches, kernels * 264 / 1024, 1e-9);

  const auto launches = [this](std::uint32_t tp, std::uint32_t tokens) {
    config_ = load_model_config("llama-3.1-8b");
    shard_ = make_shard(config_, tp, 0);
    ModeledForward pieces(config_, profile_, shard_, std::make_unique<FakeBackend>(&calls_),
                          {.cuda_graph_bs = {1}, .prefill_graphs = {.tokens = {512, 8192}}});
    const StepCost step = pieces.forward(extend(tokens));
    EXPECT_DOUBLE_EQ(step.issue_seconds, 32 * profile_.piecewise_layer_seconds());
    return step.launches;
  };
  EXPECT_EQ(launches(1, 8000), launches(1, 500));
  EXPECT_EQ(launches(2, 500), launches(1, 500));  // SGLang's own all-reduce is part of a piece
  EXPECT_GE(launches(2, 8000), launches(1, 8000) + 2 * 2 * 32);
}

// Data-parallel ranks that prefill wait for their hosts, whatever the tokens; those that decode in graphs
// exchange tokens, and come apart meanwhile.
TEST_F(ModeledForwardTest, DataParallelRanksWaitForTheirHosts) {
  config_ = load_model_config("qwen3-30b-a3b");
  ParallelLayout layout;
  layout.tp_size = layout.dp_size = 2;
  shard_ = make_shard(config_, layout, 0);
  ModeledForward ranks(config_, profile_, shard_, std::make_unique<FakeBackend>(&calls_),
                       {.cuda_graph_bs = {1, 8}, .host = load_host("h200-sxm")});
  std::vector<std::uint32_t> counts, logits = {1, 1};
  const auto together = [&](attention::ForwardMetadata metadata, std::uint32_t own, std::uint32_t other) {
    counts = {own, other};
    metadata.global_num_tokens = counts;
    metadata.global_num_tokens_for_logprob = logits;
    metadata.is_extend_in_batch = metadata.forward_mode == proto::EXTEND || other > 8;
    return ranks.forward(metadata);
  };
  const StepCost few = together(extend(26), 26, 0), many = together(extend(2048), 2048, 8);
  EXPECT_EQ(few.issue_seconds, many.issue_seconds);
  EXPECT_GT(few.issue_seconds, config_.num_layers * 1.5e-3);
  EXPECT_LT(many.device_seconds, many.issue_seconds);
  // A rank that decodes beside a prefill is as slow.
  EXPECT_NEAR(together(decode(1, 0), 1, 1024).issue_seconds / few.issue_seconds, 1, 0.05);

  const StepCost captured = together(decode(8, 8), 8, 8);
  const OperatorCosts costs(profile_);
  const double own = 8.0 * config_.hidden_size * 2;
  const double alone = costs.all_gather(own, 2).seconds + costs.reduce_scatter(2 * own, 2).seconds;
  EXPECT_EQ(captured.issue_seconds, 0);
  EXPECT_GT(captured.collective, config_.num_layers * (alone + 1e-5));
}

// Prefill of data-parallel ranks replays graphs beside idle ranks and decodes, as a server of 0.5.23 did, but
// not beside a decode of one request: of its one token the smallest graph would make four. Nor beside
// verified drafts, and beside decodes not in front of an all-to-all (dp_attn.py,
// _local_prefill_cuda_graph_vote).
TEST_F(ModeledForwardTest, DataParallelRanksReplayPrefillTogether) {
  config_ = load_model_config("deepseek-v2-lite");
  ParallelLayout layout;
  layout.tp_size = layout.dp_size = 2;
  enum class Other : std::uint8_t { kExtends, kDecodes, kVerifies };
  const auto launches = [&](std::uint32_t own, std::uint32_t other, Other what = Other::kExtends) {
    shard_ = make_shard(config_, layout, 0);
    ModeledForward ranks(config_, profile_, shard_, std::make_unique<FakeBackend>(&calls_),
                         {.cuda_graph_bs = {1, 8},
                          .prefill_graphs = {.tokens = {4, 8, 1024, 4096}},
                          .host = load_host("h200-sxm")});
    const std::vector<std::uint32_t> counts = {own, other}, logits = {1, 1};
    attention::ForwardMetadata metadata = extend(own);
    metadata.global_num_tokens = counts;
    metadata.global_num_tokens_for_logprob = logits;
    metadata.is_extend_in_batch = true;
    metadata.is_decode_in_batch = what == Other::kDecodes;
    metadata.is_verify_in_batch = what == Other::kVerifies;
    return ranks.forward(metadata).launches;
  };
  const double replayed = launches(1000, 1000), eager = launches(5000, 1000);
  EXPECT_LT(replayed, 0.8 * eager);
  EXPECT_EQ(launches(1000, 0), replayed);
  EXPECT_EQ(launches(1000, 2, Other::kDecodes), replayed);
  EXPECT_EQ(launches(1000, 1, Other::kDecodes), eager);
  EXPECT_EQ(launches(1000, 5000), eager);
  EXPECT_EQ(launches(1000, 8, Other::kVerifies), eager);

  layout.ep_size = 2;
  layout.moe_a2a = MoeA2aBackend::kDeepEp;
  EXPECT_LT(launches(1000, 8), launches(1000, 8, Other::kDecodes));
}

// Long passes of 16-bit products run at the rate that the board's power allows, short ones and others as
// their kernels alone.
TEST_F(ModeledForwardTest, ThePowerLimitSlowsLongPassesOfProducts) {
  // With a limit of `share` of the dense rate; 0: none.
  const auto seconds = [this](double share, const attention::ForwardMetadata& pass) {
    proto::HardwareProfile profile = profile_;
    auto& entries = *profile.mutable_efficiencies();
    entries.erase(
        std::remove_if(entries.begin(), entries.end(),
                       [](const auto& entry) { return entry.operator_class().starts_with(kPowerClass); }),
        entries.end());
    if (share > 0) {
      proto::OperatorEfficiency& power = *entries.Add();
      power.set_operator_class(std::string(kPowerClass));
      power.set_compute(share);
      power.set_memory(1);
      power.set_fixed_seconds(0.002);
    }
    config_ = load_model_config("llama-3.1-8b");
    shard_ = make_shard(config_, 1, 0);
    ModeledForward forward(config_, profile, shard_, std::make_unique<FakeBackend>(&calls_),
                           {.cuda_graph_bs = {1, 64}});
    const StepCost step = forward.forward(pass);
    return step.attention + step.gemm + step.collective + step.other + step.launch;
  };
  EXPECT_EQ(seconds(0.5, extend(64)), seconds(0, extend(64)));
  EXPECT_EQ(seconds(0.5, decode(64, 64)), seconds(0, decode(64, 64)));
  double before = 0;
  for (const std::uint32_t tokens : {2048U, 4096U, 8192U, 16384U, 32768U}) {
    const double limited = seconds(0.5, extend(tokens)), unlimited = seconds(0, extend(tokens));
    EXPECT_GT(limited, before);
    EXPECT_GT(limited, 1.05 * unlimited);
    EXPECT_GE(limited, 2.0 * 6.98e9 * tokens / (0.5 * profile_.dense_flops_bf16()) - 0.002);
    EXPECT_EQ(seconds(1, extend(tokens)), unlimited);
    before = limited;
  }
}

// A token of gemma-3-12b alone on an H200: 13.2 ms by SGLang 0.5.12, 9.7 by 0.5.23 (h200-sxm_servers).
TEST_F(ModeledForwardTest, NormsOfGemma3BecameKernels) {
  const auto token = [&](bool kernels) {
    config_ = load_model_config("gemma-3-12b");
    config_.facts.residual_norm_kernels = config_.facts.compiles_rotation = kernels;
    shard_ = make_shard(config_, 1, 0);
    ModeledForward forward(config_, profile_, shard_, std::make_unique<FakeBackend>(&calls_),
                           {.cuda_graph_bs = {1}});
    const StepCost step = forward.forward(decode(1, 1));
    return step.gemm + step.other + step.launch;
  };
  EXPECT_NEAR(token(true) / token(false), 9.7 / 13.2, 0.03);
}

TEST_F(ModeledForwardTest, FlopsAreThoseOfTheModel) {
  ModeledForward forward = make("llama-3.1-8b", 1, {});
  const double tokens = 2048;
  const StepCost step = forward.forward(extend(2048));
  // 2 flops a parameter and token; embedding is looked up; the head runs on the last token only.
  const double head = 128256.0 * 4096;
  const double body = 8.03e9 - 2 * head;
  EXPECT_NEAR(step.flops, 2 * (body * tokens + head), 0.01 * 2 * body * tokens);
  EXPECT_EQ(step.communicated_bytes, 0);
  EXPECT_EQ(step.collective, 0);
}

TEST_F(ModeledForwardTest, DecodeReadsTheWeightsOnce) {
  ModeledForward forward = make("llama-3.1-8b", 1, {1});
  const StepCost step = forward.forward(decode(1, 1));
  const double weights = 2 * (8.03e9 - 128256.0 * 4096);
  EXPECT_NEAR(step.memory_bytes, weights, 0.02 * weights);
  EXPECT_GT(step.gemm, weights / profile_.memory_bandwidth());
}

TEST_F(ModeledForwardTest, CollectivesOfTensorParallelism) {
  ModeledForward forward = make("llama-3.1-70b", 8, {});
  const StepCost step = forward.forward(extend(8192));
  const double message = 8192.0 * 8192 * 2;
  const double all_reduces = 161 * 2 * message * 7 / 8;  // two a layer and the embedding
  EXPECT_GT(step.communicated_bytes, all_reduces);       // and the logits
  EXPECT_LT(step.communicated_bytes, all_reduces * 1.01);
  EXPECT_GT(step.collective, all_reduces / profile_.link_bandwidth());
}

TEST_F(ModeledForwardTest, MixedIsOnePassOfAllItsRows) {
  ModeledForward forward = make("llama-3.1-8b", 1, {});
  attention::ForwardMetadata mixed = extend(1000);
  lens_.assign(24, 500);
  mixed.forward_mode = proto::MIXED;
  mixed.decode_seq_lens = lens_;
  const StepCost step = forward.forward(mixed);
  EXPECT_EQ(calls_.extend, 1);
  EXPECT_EQ(calls_.decode, 0);
  const double mixed_flops = step.flops;
  const double extend_flops = forward.forward(extend(1024)).flops;
  EXPECT_NEAR(mixed_flops / extend_flops, 1, 0.01);
}

TEST_F(ModeledForwardTest, ExpertsAndWindowsArePriced) {
  ModeledForward moe = make("qwen3-30b-a3b", 4, {});
  const double active = 2.0 * 4096 * 3.0e9 / 4;  // about 3 G parameters a token, a quarter of them here
  const double flops = moe.forward(extend(4096)).flops;
  EXPECT_GT(flops, active * 0.8);
  EXPECT_LT(flops, active * 1.2);
}

// Ling's shared experts, 3 x 2048 x 512 numbers of 16 bit in 19 layers, run beside the routed ones where a
// graph is replayed; ERNIE's wait for them.
TEST_F(ModeledForwardTest, TheSecondStreamHidesSharedExpertsOfGraphs) {
  const auto hidden = [&](const std::string& model) {
    ModeledForward forward = make(model, 1, {16});
    return forward.forward(decode(16, 0)).gemm - forward.forward(decode(16, 16)).gemm;
  };
  const double read = 3.0 * 2048 * 512 * 2 * 19 / profile_.memory_bandwidth();
  EXPECT_GT(hidden("ling-mini-2.0"), read);
  EXPECT_LT(hidden("ling-mini-2.0"), 10 * read);
  EXPECT_EQ(hidden("ernie-4.5-21b-a3b"), 0);
}

TEST_F(ModeledForwardTest, DeterministicFastAndWithoutAllocation) {
  ModeledForward forward = make("llama-3.1-70b", 8, capture_batch_sizes(512));
  const attention::ForwardMetadata metadata = decode(64, 64);
  const StepCost first = forward.forward(metadata);
  const std::uint64_t before = allocations();
  constexpr int kSteps = 20000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) {
    const StepCost step = forward.forward(metadata);
    if (!(step == first)) FAIL();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(allocations(), before);
  RecordProperty("nanoseconds_per_step", static_cast<int>(seconds / kSteps * 1e9));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(seconds / kSteps, 3e-6);
#endif
}

}  // namespace
}  // namespace tpsim::rank
