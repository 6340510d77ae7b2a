// Deployments of models with rules of their own: dual chunk attention, and states of gated delta-nets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launch/deployment/resolve.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMillion = R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584,
  "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
  "vocab_size": 152064, "max_position_embeddings": 1010000, "rope_theta": 10000000.0, "dtype": "bfloat16",
  "dual_chunk_attention_config": {"chunk_size": 262144, "local_size": 8192,
                                  "original_max_position_embeddings": 262144}})";
constexpr const char* kHybrid = R"({"architectures": ["Qwen3NextForCausalLM"], "hidden_size": 2048,
  "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
  "head_dim": 256, "vocab_size": 151936, "max_position_embeddings": 262144, "num_experts": 512,
  "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
  "partial_rotary_factor": 0.25, "rope_theta": 10000000, "dtype": "bfloat16"})";

class ModelRules : public ::testing::Test {
 protected:
  ~ModelRules() override { std::filesystem::remove_all(folder_); }

  Deployment resolve(const char* config, std::vector<std::string> extra) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << config;
    std::vector<std::string> words = {"--model-path", folder_.string(), "--trace", "t", "--tp", "4"};
    if (std::find(extra.begin(), extra.end(), "--hardware") == extra.end()) {
      words.insert(words.end(), {"--hardware", "h200-sxm"});
    }
    words.insert(words.end(), extra.begin(), extra.end());
    return resolve_deployments(parse(words), false).at(0);
  }
  std::string refused(const char* config, std::vector<std::string> extra) {
    try {
      resolve(config, std::move(extra));
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  }
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("tpsim-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

bool says(const Deployment& deployment, const std::string& part) {
  return std::any_of(deployment.notes.begin(), deployment.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST_F(ModelRules, DualChunkForcesItsBackendAndNoPrefixes) {
  const Deployment deployment = resolve(kMillion, {"--enable-mixed-chunk"});
  EXPECT_EQ(deployment.attention.backends.name(), "dual_chunk_flash_attn");
  EXPECT_TRUE(deployment.scheduler.disable_radix_cache);
  EXPECT_FALSE(deployment.scheduler.enable_mixed_chunk);
  EXPECT_TRUE(says(deployment, "radix cache are off"));
  EXPECT_THAT(refused(kMillion, {"--attention-backend", "fa3"}), HasSubstr("dual chunk attention"));
  EXPECT_EQ(resolve(kMillion, {"--page-size", "64"}).scheduler.page_size, 64U);  // divides 253,952
}

TEST_F(ModelRules, ASparseFileBesideTheConfigIsNoticed) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "sparse_attention_config.json") << "[]";
  EXPECT_THAT(refused(kMillion, {}), HasSubstr("sparse_attention_config.json"));
}

TEST_F(ModelRules, StatesBoundTheRunningRequests) {
  const Deployment deployment = resolve(kHybrid, {});
  EXPECT_FALSE(deployment.scheduler.disable_radix_cache);
  EXPECT_GT(deployment.memory.state_slots, 100U);
  EXPECT_EQ(deployment.scheduler.states.slots, deployment.memory.state_slots);
  // With a radix cache and overlap scheduling SGLang counts five states for each running request: its own,
  // two for snapshots, one that it goes on from, one to spare.
  EXPECT_LE(deployment.scheduler.max_running_requests * 5, deployment.memory.state_slots);
  const Deployment few = resolve(kHybrid, {"--max-mamba-cache-size", "64"});
  EXPECT_EQ(few.scheduler.max_running_requests, 12U);
  EXPECT_GT(few.scheduler.max_total_num_tokens, deployment.scheduler.max_total_num_tokens);
  EXPECT_EQ(few.scheduler.cuda_graph_bs.back(), 12U);
  EXPECT_EQ(
      resolve(kHybrid, {"--max-mamba-cache-size", "64", "--disable-overlap-schedule", "--page-size", "64"})
          .scheduler.max_running_requests,
      16U);
  EXPECT_EQ(resolve(kHybrid, {"--max-mamba-cache-size", "64", "--disable-overlap-schedule"})
                .scheduler.max_running_requests,
            21U);
  EXPECT_EQ(resolve(kHybrid, {"--max-mamba-cache-size", "64", "--disable-radix-cache"})
                .scheduler.max_running_requests,
            64U);
  EXPECT_THAT(refused(kHybrid, {"--max-mamba-cache-size", "4"}), HasSubstr("takes 5 states"));
  // Half as wide a state: twice as many, but for the convolution's.
  const Deployment narrow = resolve(kHybrid, {"--mamba-ssm-dtype", "bfloat16"});
  EXPECT_NEAR(
      static_cast<double>(narrow.memory.state_slots) / static_cast<double>(deployment.memory.state_slots), 2,
      0.1);
  const Deployment more = resolve(kHybrid, {"--mamba-full-memory-ratio", "9"});
  EXPECT_NEAR(
      static_cast<double>(more.memory.state_slots) / static_cast<double>(deployment.memory.state_slots),
      0.9 / (0.9 / 1.9), 0.01);
}

TEST_F(ModelRules, FlagsOfStatesAreForModelsThatHaveThem) {
  EXPECT_THAT(refused(kMillion, {"--max-mamba-cache-size", "64"}), HasSubstr("no gated delta-net layers"));
  EXPECT_EQ(resolve(kHybrid, {"--linear-attn-backend", "triton"}).attention.backends.name(), "fa3");
}

// SGLang 0.5.23 arg_groups/overrides.py, _mamba_radix_cache_resolution, and mamba_hook.py.
TEST_F(ModelRules, StatesAreKeptByTheStrategyThatKernelsAndPagesAllow) {
  const auto states = [&](std::vector<std::string> extra) {
    return resolve(kHybrid, std::move(extra)).scheduler;
  };
  EXPECT_EQ(states({}).states.tracking_slots, 2U);
  EXPECT_EQ(states({}).states.chunk, 64U);
  EXPECT_EQ(states({}).states.track_interval, 256U);
  EXPECT_EQ(states({"--page-size", "128"}).states.chunk, 128U);
  EXPECT_EQ(states({"--page-size", "64", "--disable-overlap-schedule"}).states.tracking_slots, 1U);
  EXPECT_EQ(states({"--disable-overlap-schedule"}).states.tracking_slots, 0U);
  // Kernels that write no state on the way: the end of a sequence only, and no overlap.
  const scheduler::SchedulerConfig flashinfer = states({"--linear-attn-backend", "flashinfer"});
  EXPECT_EQ(flashinfer.states.tracking_slots, 0U);
  EXPECT_TRUE(flashinfer.disable_overlap_schedule);
  EXPECT_FALSE(flashinfer.disable_radix_cache);
  EXPECT_EQ(states({"--linear-attn-prefill-backend", "flashinfer"}).states.tracking_slots, 2U);
  EXPECT_THAT(refused(kHybrid, {"--linear-attn-backend", "flashinfer", "--page-size", "64"}),
              HasSubstr("needs --page-size 1"));
  EXPECT_THAT(refused(kHybrid, {"--linear-attn-backend", "flashinfer", "--mamba-radix-cache-strategy",
                                "extra_buffer"}),
              HasSubstr("needs --linear-attn-backend triton"));
  EXPECT_THAT(refused(kHybrid, {"--mamba-radix-cache-strategy", "no_buffer"}),
              HasSubstr("needs --disable-overlap-schedule"));
  EXPECT_EQ(
      states({"--mamba-scheduler-strategy", "no_buffer", "--disable-overlap-schedule"}).states.tracking_slots,
      0U);
  EXPECT_THAT(refused(kHybrid, {"--mamba-track-interval", "96", "--page-size", "64"}),
              HasSubstr("must be a multiple of --page-size 64"));
  // 0.5.12 keeps no snapshots (_handle_mamba_radix_cache of its server_args.py).
  EXPECT_TRUE(says(resolve(kHybrid, {"--sglang-version", "0.5.12"}), "overlap scheduling is off"));
}

// server_args.py of 0.5.14 names Lfm2ForCausalLM alone; arg_groups/model_hook.py of 0.5.23 its MoE class,
// too.
TEST_F(ModelRules, OverlapGoesOnBesideStatesWhereSGLangDoesNotLook) {
  const auto overlaps = [&](const char* model, const char* release) {
    const auto args = parse({"--model-path", model, "--hardware", "h200-sxm", "--trace", "t",
                             "--sglang-version", release, "--mamba-radix-cache-strategy", "no_buffer"});
    return !resolve_deployments(args, false).at(0).scheduler.disable_overlap_schedule;
  };
  EXPECT_TRUE(overlaps("lfm2.5-8b-a1b", "0.5.12"));
  for (const char* release : {"0.5.12", "0.5.23"}) {
    EXPECT_THROW(overlaps("lfm2.5-1.2b", release), UserError);
    EXPECT_TRUE(overlaps("lfm2.5-vl-1.6b", release));
  }
  EXPECT_THROW(overlaps("lfm2.5-8b-a1b", "0.5.23"), UserError);
}

// arg_groups/mamba_hook.py and model_hook.py of 0.5.23: no snapshots of LFM2's states, no pages beside them,
// and not triton.
TEST_F(ModelRules, Lfm2sStatesAreKeptAtTheEndOfASequence) {
  const auto lfm2 = [&](std::vector<std::string> extra) {
    std::vector<std::string> words = {"--model-path", "lfm2.5-1.2b", "--hardware",
                                      "h200-sxm",     "--trace",     "t"};
    words.insert(words.end(), extra.begin(), extra.end());
    return resolve_deployments(parse(words), false).at(0);
  };
  const auto why = [&](std::vector<std::string> extra) -> std::string {
    try {
      lfm2(std::move(extra));
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(lfm2({}).scheduler.states.tracking_slots, 0U);
  EXPECT_TRUE(lfm2({}).scheduler.disable_overlap_schedule);
  EXPECT_THAT(why({"--page-size", "16"}), HasSubstr("--page-size 16: "));
  EXPECT_EQ(why({"--page-size", "16", "--disable-radix-cache"}), "");
  EXPECT_THAT(why({"--attention-backend", "trtllm_mha"}), HasSubstr("needs pages of 1 token"));
  EXPECT_THAT(why({"--attention-backend", "triton"}), HasSubstr("a convolution without attention"));
  EXPECT_THAT(why({"--mamba-radix-cache-strategy", "extra_buffer"}), HasSubstr("use no_buffer"));
}

// layers/attention/linear/gdn_backend.py and arg_groups/attention_hook.py of 0.5.23.
TEST_F(ModelRules, KernelsOfGatedDeltaNetsAreThoseOfTheGpu) {
  const auto kernels = [&](std::vector<std::string> extra) {
    const rank::LinearAttnBackends chosen = resolve(kHybrid, std::move(extra)).states.kernels;
    return to_string(chosen.prefill) + "+" + to_string(chosen.decode);
  };
  EXPECT_EQ(kernels({}), "flashinfer+triton");  // Hopper, fp32 states, chunks of 8192
  EXPECT_EQ(kernels({"--linear-attn-prefill-backend", "triton"}), "triton+triton");
  EXPECT_EQ(kernels({"--chunked-prefill-size", "-1"}), "triton+triton");
  EXPECT_EQ(kernels({"--mamba-ssm-dtype", "bfloat16"}), "triton+triton");
  EXPECT_EQ(kernels({"--linear-attn-decode-backend", "cutedsl"}), "flashinfer+cutedsl");
  EXPECT_EQ(kernels({"--linear-attn-prefill-backend", "cutedsl"}), "triton+triton");  // SM 10.x only
  EXPECT_EQ(kernels({"--hardware", "b200"}), "triton+triton");
  EXPECT_EQ(
      kernels({"--hardware", "b200", "--mamba-ssm-dtype", "bfloat16", "--chunked-prefill-size", "8192"}),
      "flashinfer+flashinfer");
  EXPECT_EQ(kernels({"--hardware", "b200", "--linear-attn-prefill-backend", "cutedsl"}), "cutedsl+triton");
  EXPECT_EQ(kernels({"--hardware", "a100-sxm"}), "triton+triton");
  EXPECT_THAT(refused(kHybrid, {"--hardware", "b200", "--linear-attn-decode-backend", "flashinfer"}),
              HasSubstr("needs --mamba-ssm-dtype bfloat16"));
  EXPECT_THAT(refused(kHybrid, {"--hardware", "a100-sxm", "--linear-attn-decode-backend", "cutedsl"}),
              HasSubstr("need a Hopper or Blackwell GPU"));
  EXPECT_THAT(refused(kHybrid, {"--hardware", "mi300x", "--linear-attn-decode-backend", "flashinfer"}),
              HasSubstr("are for NVIDIA GPUs"));
}

}  // namespace
}  // namespace tpsim::launch
