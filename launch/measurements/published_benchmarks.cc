#include "launch/measurements/published_benchmarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "launch/measurements/server_account.h"

namespace tpsim::launch {
namespace {

class Flags {
 public:
  explicit Flags(std::vector<std::string>& flags) : flags_(flags) {}
  void name(std::string_view flag) { flags_.emplace_back(flag); }
  void value(std::string_view flag, std::string_view value) {
    flags_.emplace_back(flag);
    flags_.emplace_back(value);
  }
  void count(std::string_view flag, std::uint64_t value) { this->value(flag, std::to_string(value)); }

 private:
  std::vector<std::string>& flags_;
};

// Seconds that a B200 of a row without a version stood still, which was not warmed up. At the first whole
// chunk: 69 to 82 s in nvfp4 (12 loads), by its mean time to the first token less that of 0.5.9, whose
// servers were, times the ten rounds that it is a mean of; fp8's are asked with the same. In nvfp4 also at
// the first batch of several requests, 2.3 to 4.7 (9 loads).
constexpr std::string_view kNvfp4CompileSeconds = "3.5,70";
constexpr std::string_view kFp8CompileSeconds = "0,70";

// Host time between two passes that overlap did not hide, one set for all models of the releases. Both were
// chosen on served rows.
// Releases before 0.5.4 launch passes from a thread of the scheduler's own process (managers/
// tp_worker_overlap_thread.py), whose Python takes turns with the scheduler's. Decode steps of Qwen3-32B on
// 2, 4 and 8 H100s (differences of loads that differ in their output's length only) take 0.7 to 1.4 ms longer
// than their kernels at 16 requests, 0.8 to 2.3 at 64, 1.9 to 2.1 at 128; DeepSeek's on B200s, of rows
// without a version, 1.3 ms longer than 0.5.9's at 4 and 8 requests, 1.6 at 16, 2.0 at 32 and 64, 3.7 at 128.
constexpr std::string_view kOverlapThreadGapMs = "1.2,0.012";
// 0.5.6: an 8B model on 1 and 2 H200s with 80 to 448 requests in flight took 4.5 to 6.8 ms a step longer than
// its kernels, 1.2 with 32; rows of 4 and 8 GPUs, and DeepSeek's one on a B200, were not looked at. Why is
// not known.
constexpr std::string_view kGap056Ms = "3,0.008";

// 0.5.9: prefills of about 900 tokens by DeepSeek's 61 layers, which are eager and wait for the host, were
// seen 24 to 60 ms later than predicted on B200s in nvfp4 (28 rows) and 75 to 110 ms on H200s (17 rows). Host
// time of one launch from Python, 46 us on our own machines with 0.5.12 and one to four ranks; one for all
// models of the releases. H200s alone would say 83 us, B200s in nvfp4 70.
constexpr std::string_view kEagerLaunchUs = "69";

// DeepSeek's tokenizer (its tokenizer.json, tokenizers 0.23, one core of a Xeon like the hosts of our H200s)
// on what the benchmark makes of random ids: 3.5 to 4 us a token. Text of 0.5.10's client, below: 1 to 1.2
// us.
constexpr std::string_view kTokenizeUs = "3.6", kTokenizeAgainUs = "1.1";

// SGLang 0.5.10 comes with transformers 5, which gives DeepSeek's tokenizer LLaMA's way to cut a text. The
// server mends that (utils/hf_transformers_utils.py: _fix_v5_tokenizer_components), the benchmark's client,
// which runs beside it, did not: what it takes for 7,140 tokens the server reads as 35,921
// (SemiAnalysisAI/InferenceX, pull request 937; mended by 1381, and B300s were measured again by 1502). Made
// again here with transformers 5.3.0 and the client's sample_random_requests: 4.97 to 5.34 in the mean of 40.
constexpr double kServerTokens = 35921.0 / 7140;

// How often the guesses of DeepSeek's next-token head are right, which no row says: of the first one 0.85 to
// 0.9 (DeepSeek-V3's report, 5.4.3), and 2.44 tokens are kept of a step with two of them
// (lmsys.org/blog/2025-07-17-mtp).
constexpr std::string_view kAcceptRates = "0.85,0.69";

// Requests at once: as many are captured.
void batches(Flags& flags, std::uint64_t requests, std::string_view share) {
  flags.count("--max-running-requests", requests);
  flags.count("--cuda-graph-max-bs", requests);
  flags.value("--mem-fraction-static", share);
}

void chunks(Flags& flags, std::uint64_t tokens) {
  flags.count("--chunked-prefill-size", tokens);
  flags.count("--max-prefill-tokens", tokens);
}

// dsr1_fp8_h200.sh.
void inference_x_hopper(const PublishedRow& row, Flags& flags) {
  batches(flags, row.isl == 1024 && row.osl == 1024 ? 512 : 256, "0.82");
  chunks(flags, 32768);
  flags.value("--attention-backend", "flashinfer");
  flags.count("--stream-interval", 10);
}

// .github/configs/nvidia-master.yaml runs the head at --tp 8 and from 0.5.8 on, and nothing else with more
// than 64 in flight (of fp8 without --ep-size). It is faster with few.
bool has_next_token_head(const PublishedRow& row) {
  return row.hardware == "b200" && row.precision == "fp8" && row.tp_size == 8 && row.ep_size == 1 &&
         row.dp_size == 1 && !is_older(row.version, "0.5.8") && (row.concurrency > 64 || row.faster_twin);
}

// dsr1_fp8_b200_mtp.sh. Its SGLANG_ENABLE_SPEC_V2=1 is not exported: the server speculates without overlap.
void next_token_head(Flags& flags) {
  batches(flags, 512, "0.82");
  chunks(flags, 16384);
  flags.value("--speculative-algorithm", "EAGLE");
  flags.count("--speculative-num-steps", 2);
  flags.count("--speculative-eagle-topk", 1);
  flags.count("--speculative-num-draft-tokens", 3);
  flags.value("--speculative-accept-rates", kAcceptRates);
  flags.name("--disable-overlap-schedule");
}

// dsr1_fp8_b200.sh, dsr1_fp4_b200.sh; the B300's repeat them.
void inference_x_blackwell(const PublishedRow& row, Flags& flags) {
  flags.value("--attention-backend", "trtllm_mla");
  flags.value("--kv-cache-dtype", "fp8_e4m3");
  const bool fp8_on_four = row.precision == "fp8" && row.tp_size == 4;
  // SGLang has it not with data-parallel attention (managers/scheduler_recv_skipper.py).
  if (row.dp_size == 1)
    flags.count("--scheduler-recv-interval", row.concurrency >= 16 && !fp8_on_four ? 30 : 10);
  if (row.version.empty())
    flags.value("--compile-seconds", row.precision == "fp4" ? kNvfp4CompileSeconds : kFp8CompileSeconds);
  if (row.precision == "fp4") {
    batches(flags, 256, "0.85");
    flags.count("--chunked-prefill-size", 16384);
    flags.count("--stream-interval", 10);
    return;
  }
  flags.count("--stream-interval", 30);
  // SGL_ENABLE_JIT_DEEPGEMM=false: what is left on these GPUs (fp8_utils.py: _dispatch_auto_backend).
  flags.value("--fp8-gemm-backend", "flashinfer_trtllm");
  if (fp8_on_four) {
    batches(flags, 32, "0.95");
    chunks(flags, 8192);
  } else if (has_next_token_head(row)) {
    next_token_head(flags);
  } else {
    batches(flags, std::max<std::uint64_t>(row.concurrency, 128), "0.82");
    chunks(flags, 32768);
  }
}

// launch_b200-nvd.sh sends 50 rounds (20 of answers of 8,192 tokens) where the model is
// deepseek-ai/DeepSeek-R1-0528 or nvidia/DeepSeek-R1-0528-FP4, and ten for the -FP4-V2 that was run later.
// The former is dsr1-tmpl.yml's, and it alone ran 8,192 + 1,024 at --tp 8 with more than 16 in flight:
// search-space.yml and nvidia-master.yaml end there.
std::uint64_t rounds_without_version(const PublishedRow& row) {
  const bool first_nvfp4 = row.isl == 8192 && row.tp_size == 8 && row.concurrency > 16;
  if (row.precision == "fp4" && !first_nvfp4) return 10;
  return row.osl == 8192 ? 20 : 50;
}

// B200s of InferenceMAX's first months. Its nvfp4 script said --enable-ep-moe, SGLang's --ep-size of all
// GPUs, until pull request 204 gave results a column for it.
void first_months(const PublishedRow& row, PublishedPattern& pattern) {
  pattern.rounds = rounds_without_version(row);
  if (row.precision == "fp4") pattern.ep_size = row.tp_size;
}

}  // namespace

bool is_deepseek(const PublishedRow& row) { return row.model.find("DeepSeek") != std::string::npos; }

PublishedPattern published_pattern(const PublishedRow& row) {
  PublishedPattern pattern;
  pattern.ep_size = row.ep_size;
  Flags flags(pattern.server_flags);
  const bool hopper = row.hardware.starts_with("h");
  // Prefill graphs are on since 0.5.10 (server_args.py: disable_piecewise_cuda_graph, before that
  // enable_piecewise_cuda_graph; 0.5.1 has none).
  // 0.5.10 and 0.5.12 leave them out where FlashInfer's TensorRT-LLM kernels run the experts, too
  // (server_args.py: _handle_moe_kernel_config).
  const bool trtllm_experts = is_deepseek(row) && !hopper && is_older(row.version, "0.5.14");
  if (is_older(row.version, "0.5.10") || trtllm_experts) flags.name("--disable-prefill-cuda-graph");
  if (!is_older(row.version, "0.5.8") && is_older(row.version, "0.5.12"))
    flags.value("--kernel-launch-us", kEagerLaunchUs);
  // Fp8 rows without a version name --ep-size, so they are 0.5.5's, which has that thread no more.
  const bool of_055 = row.version.empty() && row.precision == "fp8";
  if (is_older(row.version, "0.5.4") && !of_055)
    flags.value("--pass-gap-ms", kOverlapThreadGapMs);
  else if (!is_older(row.version, "0.5.6") && is_older(row.version, "0.5.8"))
    flags.value("--pass-gap-ms", kGap056Ms);
  if (is_deepseek(row)) {
    pattern.range_ratio = 0.8;
    pattern.front_end = "text";
    flags.name("--disable-radix-cache");
    hopper ? inference_x_hopper(row, flags) : inference_x_blackwell(row, flags);
    const bool cut_again = !is_older(row.version, "0.5.10") && is_older(row.version, "0.5.11");
    if (cut_again) pattern.server_tokens = kServerTokens;
    flags.value("--tokenize-us", cut_again ? kTokenizeAgainUs : kTokenizeUs);
    if (row.version.empty() && row.hardware == "b200") first_months(row, pattern);
    pattern.speculates = has_next_token_head(row);
    return pattern;
  }
  pattern.front_end = "ids";
  // cli_args.0.5.1.post1.j2 looks for names that the rules do not set.
  if (!is_older(row.version, "0.5.3")) {
    flags.name("--enable-mixed-chunk");
    flags.count("--max-prefill-tokens", row.isl + 1500);
    // A setting is measured at its max_batch_size, up to which every size is captured
    // (rule_plugin/benchmark/sglang.rule: estimated_concurrency, cuda_graph_batch_sizes).
    flags.count("--max-running-requests", row.concurrency);
    flags.count("--cuda-graph-max-bs", row.concurrency);
  }
  return pattern;
}

}  // namespace tpsim::launch
