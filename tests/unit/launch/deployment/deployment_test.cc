#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "launch/deployment/host.h"
#include "launch/deployment/resolve.h"
#include "rank/cost/hardware.h"
#include "scheduler/releases/sglang_release.h"
#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch {
namespace {

std::vector<std::string> with(std::vector<std::string> extra, bool compare = false) {
  std::vector<std::string> words = {"--model-path", "llama-3.1-70b", "--hardware",
                                    "h200-sxm",     "--trace",       "t"};
  if (std::find(extra.begin(), extra.end(), "--tp") == extra.end()) words.insert(words.end(), {"--tp", "8"});
  if (compare) words.insert(words.end(), {"--attention-backends", "fa3,torch_native,flashinfer+fa3"});
  words.insert(words.end(), extra.begin(), extra.end());
  return words;
}

Deployment resolve(std::vector<std::string> extra) {
  return resolve_deployments(parse(with(extra)), false).at(0);
}

std::string refused(std::vector<std::string> extra) {
  try {
    resolve(std::move(extra));
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Deployment, ChoosesWhatSglangWouldForEightH200s) {
  const Deployment deployment = resolve({});
  EXPECT_EQ(deployment.attention.backends.name(), "fa3");
  const scheduler::SchedulerConfig& config = deployment.scheduler;
  EXPECT_EQ(config.page_size, 1u);
  EXPECT_EQ(config.chunked_prefill_size, 8192u);
  EXPECT_EQ(config.max_prefill_tokens, 16384u);
  EXPECT_EQ(config.context_length, 131072u);
  EXPECT_EQ(config.max_running_requests, 4096u);
  ASSERT_EQ(config.cuda_graph_bs.size(), 52u);
  EXPECT_EQ(config.cuda_graph_bs.back(), 512u);
  // 80 layers, one KV head of 128 a rank, bf16; most of 8 x 141 GB less 141 GB of weights.
  EXPECT_EQ(deployment.ranks.state.kv_bytes_per_token, 80u * 2 * 128 * 2);
  EXPECT_GT(config.max_total_num_tokens, 2'500'000u);
  EXPECT_LT(config.max_total_num_tokens, 3'200'000u);
  ASSERT_EQ(deployment.ranks.ranks.size(), 8u);
  EXPECT_EQ(deployment.ranks.ranks[7].q_heads(0), 56u);
  EXPECT_EQ(deployment.ranks.ranks[7].kv_heads(0), 7u);
}

// Detokenizing is Python's, on a host that is as fast at it as at launching kernels.
TEST(Deployment, TextGoesBackAsFastAsTheHostIs) {
  const proto::HostProfile host = rank::load_host("h200-sxm");
  const double ids = host.front_end().stream_seconds();
  const scheduler::ReleaseRules& rules = scheduler::default_release().rules;
  const double text = front_end_of(host, 46e-6, "text", 1, rules).stream_seconds;
  EXPECT_GT(text, ids);
  EXPECT_DOUBLE_EQ(front_end_of(host, 23e-6, "text", 1, rules).stream_seconds, text / 2);
  for (const char* kind : {"ids", "kit"})
    EXPECT_EQ(front_end_of(host, 23e-6, kind, 1, rules).stream_seconds, ids) << kind;
  EXPECT_EQ(front_end_of(host, 46e-6, "ids", 1, rules).copy_seconds, 0);
  EXPECT_GT(front_end_of(host, 46e-6, "ids", 1, scheduler::parse_sglang_release("0.5.10").rules).copy_seconds,
            0);
}

TEST(Deployment, PipelineStagesHaveThePoolOfTheOneWithTheLeastRoom) {
  const Deployment whole = resolve({});
  const Deployment staged = resolve({"--pp-size", "3", "--pp-max-micro-batch-size", "7"});
  const scheduler::SchedulerConfig& config = staged.scheduler;
  EXPECT_EQ(config.pipeline.size, 3u);
  EXPECT_EQ(config.pipeline.micro_batches(), 3u);
  EXPECT_EQ(config.pipeline.requests_of_micro_batch(config.max_running_requests), 7u);
  EXPECT_TRUE(config.disable_overlap_schedule);
  EXPECT_TRUE(staged.graphs.prefill.tokens.empty());
  EXPECT_FALSE(whole.graphs.prefill.tokens.empty());
  ASSERT_EQ(staged.pipeline.stages.size(), 3u);  // 26, 27 and 27 of 80 layers
  EXPECT_EQ(staged.pipeline.stages[0].count, 26u);
  const std::vector<std::uint64_t> kv = {26 * 2 * 128 * 2, 27 * 2 * 128 * 2, 27 * 2 * 128 * 2};
  EXPECT_EQ(staged.ranks.stage_kv_bytes, kv);
  const std::vector<rank::KvCapacity>& room = staged.memory.stages;
  EXPECT_EQ(config.max_total_num_tokens, std::min({room[0].tokens, room[1].tokens, room[2].tokens}));
  EXPECT_LT(room[2].tokens, room[0].tokens);
  EXPECT_GT(config.max_total_num_tokens, 3 * whole.scheduler.max_total_num_tokens);
  ASSERT_EQ(staged.ranks.ranks.size(), 24u);
  EXPECT_EQ(staged.ranks.ranks[23].q_heads(0), 56u);
  // The last stage has the norm before the head; a head that is not used is on every stage of a Llama.
  EXPECT_EQ(staged.ranks.ranks[16].weight_bytes(), staged.ranks.ranks[8].weight_bytes() + 8192 * 2);
  EXPECT_EQ(staged.ranks.ranks[9].kv_pool_bytes(), config.max_total_num_tokens * kv[1]);
  EXPECT_EQ(staged.header.pp_size(), 3u);
  EXPECT_EQ(staged.header.server_args().at("pp_max_micro_batch_size"), "7");
  EXPECT_FALSE(whole.header.has_pp_size());
}

TEST(Deployment, EveryOptionIsPrintable) {
  const Deployment deployment = resolve({"--page-size", "64", "--rank-slowdown", "3:1.5"});
  const auto& args = deployment.header.server_args();
  EXPECT_EQ(args.at("page_size"), "64");
  EXPECT_EQ(args.at("tp_size"), "8");
  EXPECT_EQ(args.at("decode_attention_backend"), "fa3");
  EXPECT_EQ(args.at("schedule_policy"), "fcfs");
  EXPECT_EQ(args.at("kv_cache_dtype"), "bfloat16");
  EXPECT_EQ(args.at("rank_slowdown"), "3:1.5");
  EXPECT_EQ(args.at("max_total_tokens"), std::to_string(deployment.scheduler.max_total_num_tokens));
  EXPECT_EQ(deployment.scheduler.max_total_num_tokens % 64, 0u);
  EXPECT_DOUBLE_EQ(deployment.ranks.slowdown.at(3), 1.5);
}

TEST(Deployment, PrefillRunsInCapturedPiecesUpToAChunk) {
  EXPECT_EQ(resolve({}).graphs.prefill.tokens.back(), 8192u);
  EXPECT_EQ(resolve({"--chunked-prefill-size", "2048"}).graphs.prefill.tokens.back(), 2048u);
  EXPECT_EQ(resolve({"--piecewise-cuda-graph-max-tokens", "1000"}).graphs.prefill.tokens.back(), 960u);
  EXPECT_EQ(resolve({"--piecewise-cuda-graph-tokens", "512", "64"}).graphs.prefill.tokens,
            (std::vector<std::uint32_t>{64, 512}));
  for (const char* flag :
       {"--disable-cuda-graph", "--disable-piecewise-cuda-graph", "--disable-prefill-cuda-graph"})
    EXPECT_TRUE(resolve({flag}).graphs.prefill.tokens.empty()) << flag;
  EXPECT_TRUE(resolve({"--attention-backend", "torch_native"}).graphs.prefill.tokens.empty());
  EXPECT_TRUE(resolve({"--chunked-prefill-size", "-1"}).graphs.prefill.tokens.empty());
  // Release 0.5.12 kept prefill's graphs in both cases.
  EXPECT_EQ(resolve({"--sglang-version", "0.5.12", "--disable-cuda-graph"}).graphs.prefill.tokens.back(),
            8192u);
  EXPECT_EQ(
      resolve({"--sglang-version", "0.5.12", "--attention-backend", "torch_native"}).graphs.prefill.bucket(1),
      4u);
  EXPECT_TRUE(resolve({"--disable-decode-cuda-graph"}).scheduler.cuda_graph_bs.empty());
  EXPECT_FALSE(resolve({"--disable-decode-cuda-graph"}).graphs.prefill.tokens.empty());
  EXPECT_EQ(resolve({"--disable-prefill-cuda-graph"}).header.server_args().at("disable_prefill_cuda_graph"),
            "true");
  EXPECT_NE(
      refused({"--cuda-graph-bs-prefill", "64", "--cuda-graph-max-bs-prefill", "128"}).find("contradicts"),
      std::string::npos);
}

std::map<std::string, std::string> calibration(std::vector<std::string> extra,
                                               const char* model = "llama-3.1-70b",
                                               const char* hardware = "h200-sxm") {
  std::vector<std::string> words = {"--model-path", model, "--hardware", hardware,
                                    "--tp",         "8",   "--trace",    "t"};
  words.insert(words.end(), extra.begin(), extra.end());
  const Deployment deployment = resolve_deployments(parse(words), false).at(0);
  std::map<std::string, std::string> rows;
  for (const proto::Calibration& row : deployment.header.calibration()) {
    EXPECT_TRUE(rows.emplace(row.operator_class(), row.status()).second) << row.operator_class();
    EXPECT_EQ(row.status() == "calibrated", row.median_error() > 0) << row.operator_class();
  }
  return rows;
}

// Whatever enters a price is a row; what no measurement stands behind is marked.
TEST(Deployment, EveryPriceHasACalibrationRow) {
  using Rows = std::map<std::string, std::string>;
  EXPECT_EQ(calibration({}), (Rows{{"attention.fa3.extend", "calibrated"},
                                   {"attention.fa3.decode", "calibrated"},
                                   {"gemm", "calibrated"},
                                   {"all_reduce.custom", "calibrated"},
                                   {"all_reduce.nccl", "calibrated"},
                                   {"all_gather", "calibrated"},
                                   {"elementwise", "calibrated"},
                                   {"power", "calibrated"},
                                   {"sampling", "uncalibrated"},
                                   {"attention.metadata", "uncalibrated"},
                                   {"kernel_launch_seconds", "calibrated"},
                                   {"piecewise_layer_seconds", "calibrated"},
                                   {"graph_replay_seconds", "uncalibrated"},
                                   {"graph_kernel_gap_seconds", "calibrated"},
                                   {"scheduler_step_seconds", "uncalibrated"},
                                   {"launch_queue", "calibrated"},
                                   {"context_bytes", "calibrated"}}));
  EXPECT_EQ(calibration({"--launch-queue", "1000"}).at("launch_queue"), "uncalibrated");
  EXPECT_EQ(calibration({"--launch-queue", "0"}).count("launch_queue"), 0u);
  const Rows eager = calibration({"--disable-cuda-graph"});
  EXPECT_EQ(eager.count("graph_replay_seconds") + eager.count("piecewise_layer_seconds"), 0u);
  const Rows torch = calibration({"--attention-backend", "torch_native"});
  EXPECT_EQ(torch.at("attention.torch_native.decode.shape_seconds"), "calibrated");
  EXPECT_EQ(torch.count("attention.metadata"), 0u);
  EXPECT_EQ(calibration({"--attention-backend", "flashinfer"}).at("attention.flashinfer.plan_host_seconds"),
            "calibrated");
  // Only the H200's host was measured.
  EXPECT_EQ(calibration({}, "llama-3.1-70b", "h100-sxm").at("kernel_launch_seconds"), "uncalibrated");
  // No configuration of the experts' kernel is tuned for an eighth of their width.
  EXPECT_EQ(calibration({}, "qwen3-30b-a3b").at("moe.default_config"), "calibrated");
  EXPECT_EQ(calibration({"--quantization", "fp8"}).at("gemm.fp8"), "calibrated");
  EXPECT_EQ(calibration({"--quantization", "fp8"}).at("power.fp8"), "calibrated");
  // On Ampere fp8 weights are widened in a kernel that nobody measured.
  EXPECT_EQ(calibration({"--quantization", "fp8"}, "llama-3.1-70b", "a100-sxm").at("gemm.int4"),
            "uncalibrated");
}

// The experts' kernel of gpt-oss on Hopper was fitted to one server's steps, and its file says of which.
TEST(Deployment, AFitToServersIsCalibratedForSuchServersAlone) {
  const auto status = [](const char* model, const char* tp, const char* load_format) {
    const ServerArgs args = parse({"--model-path", model, "--hardware", "h200-sxm", "--tp", tp,
                                   "--load-format", load_format, "--trace", "t"});
    const Deployment deployment = resolve_deployments(args, false).at(0);
    for (const proto::Calibration& row : deployment.header.calibration()) {
      if (row.operator_class() != "moe.mxfp4.triton_kernels") continue;
      EXPECT_EQ(row.status() == "calibrated", row.median_error() > 0);
      return row.status();
    }
    return std::string("no row");
  };
  EXPECT_EQ(status("gpt-oss-20b", "1", "dummy"), "calibrated");
  EXPECT_EQ(status("gpt-oss-20b", "1", "auto"), "uncalibrated");
  EXPECT_EQ(status("gpt-oss-20b", "2", "dummy"), "uncalibrated");
  EXPECT_EQ(status("gpt-oss-120b", "1", "dummy"), "uncalibrated");
}

TEST(Deployment, AnEagerLaunchTakesWhatTheFlagSays) {
  const Deployment own = resolve({}), told = resolve({"--kernel-launch-us", "69"});
  EXPECT_DOUBLE_EQ(own.hardware.kernel_launch_seconds(), 4.6e-5);
  EXPECT_DOUBLE_EQ(told.hardware.kernel_launch_seconds(), 6.9e-5);
  EXPECT_EQ(own.header.server_args().count("kernel_launch_us"), 0u);
  EXPECT_EQ(told.header.server_args().at("kernel_launch_us"), "69");
}

TEST(Deployment, FlagsOfOneSideLeaveTheOtherToTheDefault) {
  EXPECT_EQ(resolve({"--prefill-attention-backend", "flashinfer"}).attention.backends.name(),
            "flashinfer+fa3");
  EXPECT_EQ(resolve({"--attention-backend", "triton", "--decode-attention-backend", "flashinfer"})
                .attention.backends.name(),
            "triton+flashinfer");
}

// A DeepSeek-V2 whose weights nobody has: SGLang serves such a folder with dummy weights only, whose router
// sends all tokens to the same experts.
TEST(Deployment, AFolderWithoutWeightsIsServedWithDummyOnes) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "tpsim_no_weights";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json")
      << R"({"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048,
             "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
             "vocab_size": 102400, "intermediate_size": 10944, "moe_intermediate_size": 1408,
             "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
             "first_k_dense_replace": 1, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
             "qk_rope_head_dim": 64, "v_head_dim": 128, "q_lora_rank": null, "topk_method": "greedy",
             "max_position_embeddings": 4096, "scoring_func": "softmax"})";
  const auto resolve = [](const std::string& model, std::vector<std::string> extra) {
    std::vector<std::string> words = {"--model-path", model, "--hardware", "h200-sxm", "--trace", "t"};
    words.insert(words.end(), extra.begin(), extra.end());
    if (!words.back().starts_with("0.5")) words.insert(words.end(), {"--sglang-version", "0.5.14"});
    return resolve_deployments(parse(words), false).at(0);
  };
  const Deployment assumed = resolve(folder.string(), {});
  EXPECT_EQ(assumed.weights.experts_in_use, 6u);
  EXPECT_EQ(assumed.header.server_args().at("load_format"), "dummy");
  ASSERT_EQ(assumed.warnings.size(), 1u);
  EXPECT_NE(assumed.warnings[0].find("has no weights: priced as a server with --load-format dummy"),
            std::string::npos);
  EXPECT_EQ(resolve(folder.string(), {"--load-format", "dummy"}).weights.experts_in_use, 6u);
  EXPECT_TRUE(resolve(folder.string(), {"--load-format", "dummy"}).warnings.empty());
  // DeepSeek's router multiplies into fp32 since 0.5.16; gpt-oss's bias decides in any release.
  EXPECT_EQ(resolve(folder.string(), {"--sglang-version", "0.5.16"}).weights.experts_in_use, 0u);
  EXPECT_EQ(
      resolve("gpt-oss-20b", {"--load-format", "dummy", "--sglang-version", "0.5.23"}).weights.experts_in_use,
      4u);
  // Said otherwise, or an architecture by name, which stands for real weights.
  const Deployment even = resolve(folder.string(), {"--load-format", "auto"});
  EXPECT_EQ(even.weights.experts_in_use, 0u);
  EXPECT_TRUE(even.warnings.empty());
  EXPECT_EQ(resolve(folder.string(), {"--expert-distribution", "uniform"}).weights.experts_in_use, 0u);
  EXPECT_EQ(resolve("deepseek-v2-lite", {}).weights.experts_in_use, 0u);
  EXPECT_EQ(resolve("gpt-oss-20b", {}).weights.experts_in_use, 0u);
  EXPECT_EQ(resolve("gpt-oss-20b", {"--load-format", "dummy"}).weights.experts_in_use, 4u);
  std::ofstream(folder / "model.safetensors") << "weights";
  EXPECT_EQ(resolve(folder.string(), {}).weights.experts_in_use, 0u);
  std::filesystem::remove_all(folder);
}

TEST(Deployment, ComparesInTheOrderGiven) {
  const std::vector<Deployment> all = resolve_deployments(parse(with({}, true), true), true);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].header.backend(), "flashinfer+fa3");
  EXPECT_TRUE(all[1].scheduler.cuda_graph_bs.empty()) << "torch_native cannot be captured";
  EXPECT_FALSE(all[2].scheduler.cuda_graph_bs.empty());
  EXPECT_NE(all[0].configuration_hash(), all[1].configuration_hash());
  EXPECT_EQ(all[0].configuration_hash(),
            resolve_deployments(parse(with({}, true), true), true)[0].configuration_hash());
}

TEST(Deployment, ChunksAndGraphsCanBeSwitchedOff) {
  const Deployment deployment = resolve({"--chunked-prefill-size", "-1", "--disable-cuda-graph"});
  EXPECT_EQ(deployment.scheduler.chunked_prefill_size, 0u);
  EXPECT_TRUE(deployment.scheduler.cuda_graph_bs.empty());
  EXPECT_EQ(deployment.header.server_args().at("chunked_prefill_size"), "-1");
  EXPECT_EQ(deployment.header.server_args().at("disable_cuda_graph"), "true");
}

TEST(Deployment, GraphsEndAtTheRequestsThatCanRun) {
  EXPECT_EQ(resolve({"--max-running-requests", "20"}).scheduler.cuda_graph_bs,
            (std::vector<std::uint32_t>{1, 2, 4, 8, 12, 16, 20}));
}

TEST(Deployment, Fp8CacheHoldsTwiceAsMuch) {
  const double bf16 = static_cast<double>(resolve({}).scheduler.max_total_num_tokens);
  const double fp8 =
      static_cast<double>(resolve({"--kv-cache-dtype", "fp8_e4m3"}).scheduler.max_total_num_tokens);
  EXPECT_NEAR(fp8 / bf16, 2.0, 1e-4);
}

TEST(Deployment, APoolLargerThanTheMemoryIsCutAndSaidSo) {
  const Deployment deployment = resolve({"--max-total-tokens", "999999999"});
  EXPECT_LT(deployment.scheduler.max_total_num_tokens, 3'200'000u);
  ASSERT_FALSE(deployment.notes.empty());
  EXPECT_NE(deployment.notes.back().find("--max-total-tokens 999999999"), std::string::npos);
  EXPECT_EQ(resolve({"--max-total-tokens", "1000", "--page-size", "64"}).scheduler.max_total_num_tokens,
            960u);
}

// SGLang 0.5.23's own answers: a decode server keeps no room for a prefill. 0.5.12 does not ask.
TEST(Deployment, EachSideOfAPairHasItsOwnPool) {
  const auto fractions = [](std::vector<std::string> extra) {
    extra.insert(extra.end(), {"--tp", "4", "--max-running-requests", "3000", "--pd-disaggregation"});
    const Deployment pair = resolve(std::move(extra));
    return std::pair(pair.memory.mem_fraction_static,
                     pair.disaggregation.decode_side->memory.mem_fraction_static);
  };
  EXPECT_EQ(fractions({}), std::pair(0.904, 0.929));
  const auto [prefill, decode] = fractions({"--sglang-version", "0.5.12"});
  EXPECT_EQ(prefill, decode);
}

TEST(Deployment, Refusals) {
  EXPECT_EQ(refused({"--chunked-prefill-size", "100", "--page-size", "64"}),
            "--chunked-prefill-size 100: must be a multiple of --page-size 64");
  EXPECT_EQ(refused({"--max-total-tokens", "10", "--page-size", "64"}),
            "--max-total-tokens 10: is less than one page of --page-size 64");
  EXPECT_EQ(refused({"--context-length", "200000"}),
            "--context-length 200000: llama-3.1-70b was made for at most 131072 tokens");
  EXPECT_EQ(refused({"--max-running-requests", "100000"}),
            "--max-running-requests 100000: at most 65535 are simulated");
  EXPECT_NE(refused({"--decode-attention-backend", "fa33"}).find("--decode-attention-backend fa33"),
            std::string::npos);
  EXPECT_NE(refused({"--prefill-attention-backend", "trition"}).find("did you mean triton?"),
            std::string::npos);
  EXPECT_NE(
      refused({"--attention-backend", "triton", "--kv-cache-dtype", "fp8_e4m3"}).find("--kv-cache-dtype"),
      std::string::npos);
  EXPECT_NE(refused({"--rank-slowdown", "8:1.5"}).find("--rank-slowdown 8:1.5"), std::string::npos);
  EXPECT_NE(refused({"--tp", "3"}).find("--tp 3"), std::string::npos);
}

}  // namespace
}  // namespace tpsim::launch
