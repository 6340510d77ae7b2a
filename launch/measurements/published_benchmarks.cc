#include "launch/measurements/published_benchmarks.h"

#include <fmt/format.h>

#include <initializer_list>
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

// Seconds that a B200 of a row without a version stood still, which was not warmed up: its mean time to the
// first token less that of 0.5.9, whose servers were, times the ten rounds that it is a mean of. Nvfp4: 2.3
// to 4.7 at the first batch of several requests (9 loads), 69 to 82 at the first whole chunk (12 loads; in
// two of 8,192 tokens at --tp 8 what is compiled was there already); fp8: 10 (1 load).
constexpr std::string_view kNvfp4CompileSeconds = "3.5,70";
constexpr std::string_view kFp8CompileSeconds = "0,10";

// Releases before 0.5.6 launch passes from a thread of the scheduler's own process (managers/
// tp_worker_overlap_thread.py), whose Python takes turns with the scheduler's. Chosen on the decode steps of
// Qwen3-32B on H100s at 2, 4 and 8 GPUs (differences of loads that differ in their output's length only): 0.7
// to 1.4 ms a step missing at 16 requests, 0.8 to 2.3 at 64, 1.9 to 2.1 at 128. DeepSeek's rows without a
// version are of such a release, too: a step takes 1.3 ms longer at 4 and 8 requests, 1.6 at 16, 2.0 at 32
// and 64 and 3.7 at 128 than 0.5.9's.
constexpr std::string_view kOverlapThreadGapMs = "1,0.008";

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
  if (fp8_on_four) {
    batches(flags, 32, "0.95");
    chunks(flags, 8192);
  } else if (row.concurrency <= 64) {
    batches(flags, 128, "0.82");
    chunks(flags, 32768);
  } else {
    // Only dsr1_fp8_b200_mtp.sh is run with more than 64 in flight (.github/configs/nvidia-master.yaml).
    batches(flags, 512, "0.82");
    chunks(flags, 16384);
  }
}

}  // namespace

PublishedPattern published_pattern(const PublishedRow& row) {
  PublishedPattern pattern;
  Flags flags(pattern.server_flags);
  const bool hopper = row.hardware.starts_with("h");
  // Prefill graphs are on since 0.5.10 (server_args.py: disable_piecewise_cuda_graph, before that
  // enable_piecewise_cuda_graph; 0.5.1 has none).
  if (is_older(row.version, "0.5.10")) flags.name("--disable-prefill-cuda-graph");
  if (is_older(row.version, "0.5.6")) flags.value("--pass-gap-ms", kOverlapThreadGapMs);
  if (row.model.find("DeepSeek") != std::string::npos) {
    pattern.range_ratio = 0.8;
    pattern.front_end = "text";
    flags.name("--disable-radix-cache");
    hopper ? inference_x_hopper(row, flags) : inference_x_blackwell(row, flags);
    return pattern;
  }
  pattern.front_end = "ids";
  // cli_args.0.5.1.post1.j2 looks for names that the rules do not set.
  if (!is_older(row.version, "0.5.3")) {
    flags.name("--enable-mixed-chunk");
    flags.count("--max-prefill-tokens", row.isl + 1500);
  }
  return pattern;
}

}  // namespace tpsim::launch
