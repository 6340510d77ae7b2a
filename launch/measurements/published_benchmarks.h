// How the public benchmarks were run whose figures a benchmark file repeats. Its rows name model, GPU,
// lengths and parallelism; what else the servers were started with, how long the loops went on and how
// lengths spread is in the scripts that made them:
//
//   InferenceX (InferenceMAX before 2026), DeepSeek models: benchmarks/single_node/dsr1_{fp8,fp4}_{b200,h200,
//     b300}.sh, RANDOM_RANGE_RATIO of .github/workflows/benchmark-tmpl.yml, run_benchmark_serving() of
//     benchmarks/benchmark_lib.sh (ten rounds behind a warm-up of two), github.com/SemiAnalysisAI/InferenceX;
//     with DeepSeek's next-token head, which no column tells: dsr1_fp8_b200_mtp.sh, run at --tp 8 alone;
//   its first months (rows without a version, for results named no image yet): dsr1_fp{4,8}_b200_docker.sh,
//     rounds by runners/launch_b200-nvd.sh, loads by .github/workflows/dsr1-tmpl.yml, then
//     .github/configs/search-space.yml, then nvidia-master.yaml (SGLang 0.5.3rc1; 0.5.5 from pull request 204
//     on);
//   AIConfigurator's own, the others: ten rounds behind a warm-up of two of prompts of one length
//     (eval/benchmarks/genai_perf_runner.py), deployed with what generator/rule_plugin/sglang.rule and
//     backend_templates/sglang/cli_args.*.j2 of a release ask for, behind Dynamo, which tokenizes itself,
//     github.com/ai-dynamo/aiconfigurator.
//
// SGLang's own defaults of a release that differ from those of the releases that tpsim follows are among the
// flags, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::launch {

struct PublishedRow {
  std::string model, hardware, precision;  // hardware by tpsim's name; precision fp8, fp4 or empty: 16 bit
  std::string version;                     // of SGLang; empty: not said, taken for an old one
  std::uint64_t isl = 0, osl = 0;          // tokens
  std::uint64_t concurrency = 0;
  std::uint32_t tp_size = 1, ep_size = 1, dp_size = 1;  // dp_size: of attention
  // Another row of the file agrees in every column and is slower: two settings were run, of which the columns
  // name none.
  bool faster_twin = false;
};

bool is_deepseek(const PublishedRow& row);

struct PublishedPattern {
  std::vector<std::string> server_flags;  // of `tpsim run`, beside model, GPU, parallelism and release
  double range_ratio = 1;                 // of the lengths, shortest over longest
  std::uint64_t rounds = 10;              // prompts of each of the places in flight
  std::uint32_t ep_size = 1;              // as the server had it; a row may not say so
  double server_tokens = 1;               // that the server makes of the text of one of the client's tokens
  std::string front_end;                  // --front-end
  bool speculates = false;                // with the model's own next-token head
};

PublishedPattern published_pattern(const PublishedRow& row);

}  // namespace tpsim::launch
