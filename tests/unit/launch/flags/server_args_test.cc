#include "launch/flags/server_args.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch::server_args_test {
namespace {

std::vector<std::string> with(std::vector<std::string> extra) {
  std::vector<std::string> words = {"--model-path", "llama-3.1-8b", "--hardware",
                                    "h200-sxm",     "--trace",      "t.jsonl"};
  words.insert(words.end(), extra.begin(), extra.end());
  return words;
}

TEST(ServerArgs, DefaultsAreSglangs) {
  const ServerArgs args = parse(with({}));
  EXPECT_EQ(args.tp_size, 1u);
  EXPECT_EQ(args.max_prefill_tokens, 16384u);
  EXPECT_EQ(args.schedule_policy, scheduler::SchedulePolicy::kFcfs);
  EXPECT_EQ(args.radix_eviction_policy, kvcache::EvictionPolicy::kLru);
  EXPECT_DOUBLE_EQ(args.schedule_conservativeness, 1.0);
  EXPECT_EQ(args.kv_cache_dtype, "auto");
  EXPECT_FALSE(args.page_size);
  EXPECT_FALSE(args.mem_fraction_static);
  EXPECT_FALSE(args.chunked_prefill_size);
  EXPECT_FALSE(args.disable_overlap_schedule);
  EXPECT_EQ(args.max_concurrency, 0u);
}

TEST(ServerArgs, AliasesMeanTheSame) {
  for (const char* name : {"--tp", "--tp-size", "--tensor-parallel-size"})
    EXPECT_EQ(parse(with({name, "8"})).tp_size, 8u);
  EXPECT_EQ(parse({"--model", "other", "--hardware", "h", "--trace", "t"}).model_path, "other");
  EXPECT_EQ(parse(with({"--seed", "5"})).load_seed(), 5u);
  EXPECT_EQ(parse(with({"--random-seed=6"})).load_seed(), 6u);
  EXPECT_EQ(parse(with({"--mooncake-slowdown-factor", "2"})).time_scale, 2);
}

TEST(ServerArgs, ReadsEveryFlagOfTheScheduler) {
  const ServerArgs args = parse(with({"--page-size",
                                      "64",
                                      "--kv-cache-dtype",
                                      "fp8_e4m3",
                                      "--mem-fraction-static",
                                      "0.8",
                                      "--max-total-tokens",
                                      "100000",
                                      "--max-running-requests",
                                      "64",
                                      "--max-prefill-tokens",
                                      "4096",
                                      "--chunked-prefill-size",
                                      "-1",
                                      "--enable-mixed-chunk",
                                      "--schedule-policy",
                                      "dfs-weight",
                                      "--schedule-conservativeness",
                                      "0.3",
                                      "--disable-radix-cache",
                                      "--radix-eviction-policy",
                                      "filo",
                                      "--disable-overlap-schedule",
                                      "--disable-cuda-graph",
                                      "--cuda-graph-max-bs",
                                      "32",
                                      "--cuda-graph-bs",
                                      "32",
                                      "8",
                                      "8",
                                      "--context-length",
                                      "4096",
                                      "--check-invariants"}));
  EXPECT_EQ(args.page_size, 64u);
  EXPECT_EQ(args.kv_cache_dtype, "fp8_e4m3");
  EXPECT_DOUBLE_EQ(args.mem_fraction_static.value(), 0.8);
  EXPECT_EQ(args.max_total_tokens, 100000u);
  EXPECT_EQ(args.max_running_requests, 64u);
  EXPECT_EQ(args.max_prefill_tokens, 4096u);
  EXPECT_EQ(args.chunked_prefill_size, -1);
  EXPECT_TRUE(args.enable_mixed_chunk);
  EXPECT_EQ(args.schedule_policy, scheduler::SchedulePolicy::kDfsWeight);
  EXPECT_DOUBLE_EQ(args.schedule_conservativeness, 0.3);
  EXPECT_TRUE(args.disable_radix_cache);
  EXPECT_EQ(args.radix_eviction_policy, kvcache::EvictionPolicy::kFilo);
  EXPECT_TRUE(args.disable_overlap_schedule);
  EXPECT_TRUE(args.disable_cuda_graph);
  EXPECT_EQ(args.cuda_graph_bs, (std::vector<std::uint32_t>{8, 32}));
  EXPECT_EQ(args.context_length, 4096u);
  EXPECT_TRUE(args.check_invariants);
}

TEST(ServerArgs, ReadsTheLoad) {
  const ServerArgs args =
      parse({"--model-path",       "m",    "--hardware",          "h",   "--dataset-name",       "random",
             "--random-input-len", "512",  "--random-output-len", "64",  "--random-range-ratio", "0.5",
             "--num-prompts",      "10",   "--request-rate",      "inf", "--max-concurrency",    "4",
             "--rank-slowdown",    "0:1.5"});
  EXPECT_EQ(args.random_input_len, 512u);
  EXPECT_EQ(args.random_output_len, 64u);
  EXPECT_EQ(args.num_prompts, 10u);
  EXPECT_EQ(args.request_rate, std::numeric_limits<double>::infinity());
  EXPECT_EQ(args.max_concurrency, 4u);
  EXPECT_EQ(args.rank_slowdown, (std::vector<std::string>{"0:1.5"}));
  EXPECT_TRUE(parse(with({"--request-rate", "2", "--request-interval", "fixed"})).fixed_interval);
}

TEST(ServerArgs, RefusesAFlagGivenTwice) {
  EXPECT_EQ(refusal(with({"--tp", "2", "--tp", "4"})), "--tp: is given twice, give it once");
  EXPECT_EQ(refusal(with({"--tp", "2", "--tp-size=2"})),
            "--tp-size: is given twice (as --tp before), give it once");
  EXPECT_EQ(refusal(with({"--quiet", "--quiet"})), "--quiet: is given twice, give it once");
  EXPECT_EQ(refusal(with({"--rank-slowdown", "0:2", "--page-size", "1", "--rank-slowdown", "1:2"})),
            "--rank-slowdown: is given twice, give it once");
  EXPECT_EQ(parse(with({"--chunked-prefill-size", "-1"})).chunked_prefill_size, -1);
}

TEST(ServerArgs, CompareTakesBackendsAndPairs) {
  const ServerArgs args =
      parse(with({"--attention-backends", "fa3,flashinfer+fa3", "triton", "fa3+flashinfer"}), true);
  ASSERT_EQ(args.attention_backends.size(), 4u);
  EXPECT_EQ(args.attention_backends[0].name(), "fa3");
  EXPECT_EQ(args.attention_backends[1].prefill, "flashinfer");
  EXPECT_EQ(args.attention_backends[1].decode, "fa3");
  EXPECT_EQ(args.attention_backends[3].name(), "fa3+flashinfer");
  EXPECT_EQ(parse(with({"--attention-backends", "fa3+fa3"}), true).attention_backends[0].name(), "fa3");
}

struct Refusal {
  std::vector<std::string> words;
  std::string sentence;
};

// Every sentence that one flag, or two that contradict each other, can earn.
TEST(ServerArgs, RefusesInOneSentence) {
  const Refusal kRefusals[] = {
      {{"--page-size", "48"}, "--page-size 48: must be 1, 16, 32, 64 or 128"},
      {{"--page-size", "abc"}, "--page-size abc: must be 1, 16, 32, 64 or 128"},
      {{"--page-sise", "16"}, "--page-sise: unknown flag, did you mean --page-size?"},
      {{"--page-sise=16"}, "--page-sise: unknown flag, did you mean --page-size?"},
      {{"--page-size", "--tp", "8"}, "--page-size: needs a value, and --tp follows it"},
      {{"--frobnicate"}, "--frobnicate: unknown flag, see `tpsim run --help`"},
      {{"word"}, "word: `tpsim run` takes flags only, see `tpsim run --help`"},
      {{"--enable-mixed-chunk", "true"},
       "true: `tpsim run` takes flags only, and a switch its value behind =, as in --flag=true, see `tpsim "
       "run --help`"},
      {{"--tp", "0"}, "--tp-size 0: must be a whole number from 1 to 1024"},
      {{"--tp", "-8"}, "--tp-size -8: must be a whole number from 1 to 1024"},
      {{"--tp", "eight"}, "--tp-size eight: must be a whole number from 1 to 1024"},
      {{"--tp", "99999999999999999999"},
       "--tp-size 99999999999999999999: must be a whole number from 1 to 1024"},
      {{"--executor", "modelled"}, "--executor modelled: must be modeled or numeric, did you mean modeled?"},
      {{"--load-format", "safetensors"},
       "--load-format safetensors: is for --executor numeric, modeled ranks read no weights"},
      {{"--dtype", "float32"}, "--dtype float32: is for --executor numeric, use bfloat16 or float16"},
      {{"--kv-cache-dtype", "fp8"},
       "--kv-cache-dtype fp8: must be auto, bf16, bfloat16, fp16, float16, fp32, float32, "
       "fp8_e4m3, fp8_e5m2 or fp4_e2m1, did you mean "
       "fp8_e4m3?"},
      {{"--kv-cache-dtype", "fp32"},
       "--kv-cache-dtype float32: is for --executor numeric, SGLang has no such cache; use auto, bf16, "
       "fp8_e4m3, fp8_e5m2 or fp4_e2m1"},
      {{"--moe-a2a-backend", "mori"},
       "--moe-a2a-backend mori: must be none, deepep, mooncake, nixl, flashinfer, megamoe or "
       "flashinfer_megamoe"},
      {{"--load-balance-method", "random"},
       "--load-balance-method random: must be round_robin, auto, total_requests, total_tokens or "
       "follow_bootstrap_room"},
      {{"--executor", "numeric", "--rank-slowdown", "0:2"},
       "--rank-slowdown: is for --executor modeled, numeric ranks take the time they take"},
      {{"--context-length", "1"}, "--context-length 1: must be a whole number from 2 to 1000000000"},
      {{"--mem-fraction-static", "1.5"},
       "--mem-fraction-static 1.5: must be a number more than 0 and less than 1"},
      {{"--mem-fraction-static", "nan"},
       "--mem-fraction-static nan: must be a number more than 0 and less than 1"},
      {{"--chunked-prefill-size", "0"},
       "--chunked-prefill-size 0: must be a whole number from 1 to 1000000000, or -1 for no chunks"},
      {{"--chunked-prefill-size", "-2"},
       "--chunked-prefill-size -2: must be a whole number from 1 to 1000000000, or -1 for no chunks"},
      {{"--schedule-policy", "lmp"},
       "--schedule-policy lmp: must be lpm, dfs-weight, fcfs, lof or random, did you mean lpm?"},
      {{"--schedule-conservativeness", "-1"},
       "--schedule-conservativeness -1: must be a number at least 0 and at most 1000"},
      {{"--radix-eviction-policy", "tlru"},
       "--radix-eviction-policy tlru: must be lru, lfu, fifo, mru, filo, slru or priority, did you mean "
       "lru?"},
      {{"--attention-backend", "fa3+triton"},
       "--attention-backend fa3+triton: takes one backend; name a pair by --prefill-attention-backend and "
       "--decode-attention-backend"},
      {{"--cuda-graph-bs", "0"}, "--cuda-graph-bs 0: must be a whole number from 1 to 65536"},
      {{"--cuda-graph-bs", "8", "--cuda-graph-max-bs", "16"},
       "--cuda-graph-max-bs 16: contradicts --cuda-graph-bs, whose largest size is 8"},
      {{"--dataset-name", "random"}, "--dataset-name random: excludes --trace, give one of the two"},
      {{"--dataset-name", "openai"},
       "--dataset-name openai: must be random, random-ids, image, generated-shared-prefix, sharegpt or "
       "mooncake"},
      {{"--dataset-path", "f.json"}, "--dataset-name sharegpt: excludes --trace, give one of the two"},
      {{"--gsp-num-groups", "8"}, "--gsp-num-groups: is for --dataset-name generated-shared-prefix"},
      {{"--gsp-ordered"}, "--gsp-ordered: is for --dataset-name generated-shared-prefix"},
      {{"--flush-cache"}, "--flush-cache: the cache is empty at the start, it is for --warmup-requests"},
      {{"--use-trace-timestamps", "--request-rate", "2"},
       "--use-trace-timestamps: excludes --request-rate, which replaces the times of the trace"},
      {{"--random-input-len", "9"},
       "--random-input-len: is for --dataset-name random and image, the lengths of a trace are its own"},
      {{"--request-rate", "0"}, "--request-rate 0: must be a number more than 0"},
      {{"--request-interval", "fixed"}, "--request-interval fixed: needs --request-rate"},
      {{"--request-rate", "1", "--time-scale", "2"},
       "--time-scale 2: excludes --request-rate, which replaces the times of the trace"},
      {{"--time-scale", "0"}, "--time-scale 0: must be a number more than 0 and at most 1000000"},
      {{"--max-concurrency", "0"}, "--max-concurrency 0: must be a whole number from 1 to 1000000000"},
      {{"--trace-format", "moonkake"},
       "--trace-format moonkake: must be auto, mooncake, azure, burstgpt, sharegpt or tpsim, did you mean "
       "mooncake?"},
      {{"--log-level", "loud"}, "--log-level loud: must be debug, info, warning or error"},
      {{"--report-dir", ""}, "--report-dir: the value is empty"},
      {{"--speculative-algorithm", "EAGEL"},
       "--speculative-algorithm EAGEL: must be EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM, did you mean "
       "EAGLE?"},
      {{"--speculative-adaptive"},
       "--speculative-adaptive: a run keeps its --speculative-num-steps, whatever is accepted; `tpsim "
       "compare` takes a list of them"},
      {{"--speculative-accept-rates", "0.8,1.2"},
       "--speculative-accept-rates 1.2: must be a number at least 0 and at most 1"},
      {{"--mm-process-config", "{}"},
       "--mm-process-config: images are simulated with SGLang's default processors, in one server; leave it "
       "out"},
      {{"--image-count", "0"}, "--image-count 0: must be a whole number from 1 to 1000"},
      {{"--image-content", "noise"}, "--image-content noise: must be random or blank"},
      {{"--pp-size", "0"}, "--pp-size 0: must be a whole number from 1 to 1024"},
      {{"--enable-dynamic-chunking"},
       "--enable-dynamic-chunking: chunks of pipeline stages keep their size, --chunked-prefill-size; leave "
       "it out"},
      {{"--dcp-size", "2"},
       "--dcp-size: of parallelism, --tp, --ep-size, --dp-size and what belongs to them are simulated; leave "
       "it "
       "out"},
  };
  for (const Refusal& test : kRefusals) EXPECT_EQ(refusal(with(test.words)), test.sentence);
}

TEST(ServerArgs, RefusesWhatADatasetHasNoUseFor) {
  const auto said = [](std::string name, std::vector<std::string> more) {
    std::vector<std::string> words = {"--model-path", "m", "--hardware", "h", "--dataset-name",
                                      std::move(name)};
    words.insert(words.end(), more.begin(), more.end());
    return refusal(words);
  };
  EXPECT_EQ(said("sharegpt", {}),
            "--dataset-path: is required by --dataset-name sharegpt, nothing is downloaded");
  EXPECT_EQ(said("random", {"--dataset-path", "f"}),
            "--dataset-path f: is for --dataset-name sharegpt or mooncake, random prompts are lengths only");
  EXPECT_EQ(said("random", {"--session-mode", "closed"}),
            "--session-mode closed: is for --trace, the turns of random have no times of their own");
  EXPECT_EQ(said("random", {"--use-trace-timestamps"}),
            "--use-trace-timestamps: is for traces, random has no times");
  EXPECT_EQ(
      said("mooncake", {"--dataset-path", "f", "--request-rate", "4"}),
      "--request-rate 4: SGLang's benchmark keeps the times of mooncake whatever the rate; use --trace to "
      "replace them");
  EXPECT_EQ(said("generated-shared-prefix", {"--random-input-len", "4"}),
            "--random-input-len: is for --dataset-name random and image, use the --gsp-* flags");
  EXPECT_EQ(said("generated-shared-prefix", {"--num-prompts", "4"}),
            "--num-prompts 4: generated-shared-prefix makes --gsp-num-groups times --gsp-prompts-per-group "
            "conversations, leave it out");
  EXPECT_EQ(said("generated-shared-prefix", {"--gsp-zipf-alpha", "1"}),
            "--gsp-zipf-alpha: needs --gsp-group-distribution zipf");
  EXPECT_EQ(said("generated-shared-prefix", {"--gsp-group-distribution", "zipf"}),
            "--gsp-zipf-alpha: is required by --gsp-group-distribution zipf");
}

TEST(ServerArgs, ReadsDatasets) {
  const ServerArgs shared =
      parse({"--model-path", "m", "--hardware", "h", "--dataset-name", "generated-shared-prefix",
             "--gsp-num-groups", "8", "--gsp-question-len", "9", "--gsp-ordered", "--gsp-group-distribution",
             "zipf", "--gsp-zipf-alpha", "1.5", "--seed", "3"});
  EXPECT_EQ(shared.gsp.num_groups, 8u);
  EXPECT_EQ(shared.gsp.question_len, 9u);
  EXPECT_TRUE(shared.gsp.ordered);
  EXPECT_EQ(shared.gsp.zipf_alpha, 1.5);
  EXPECT_EQ(shared.load_seed(), 3u);
  EXPECT_EQ(shared.random_seed, 1u);
  EXPECT_EQ(parse({"--model-path", "m", "--hardware", "h", "--dataset-path", "f"}).dataset_name, "sharegpt");
}

TEST(ServerArgs, ServiceLevelsAreTheBenchmarks) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--goodput", "ttft:2000", "tpot:50.5", "e2e:30000"},
                                             {"--goodput", "ttft:2000,tpot:50.5,e2el:30000"},
                                             {"--goodput", "e2el:3e4,tpot:50.5", "ttft:2000"}}) {
    const ServerArgs args = parse(with(words));
    EXPECT_EQ(args.goodput.ttft_ms, 2000);
    EXPECT_EQ(args.goodput.tpot_ms, 50.5);
    EXPECT_EQ(args.goodput.e2e_ms, 30000);
    EXPECT_EQ(to_string(args.goodput), "ttft:2000 tpot:50.5 e2e:30000");
  }
  EXPECT_FALSE(parse(with({})).goodput.any());
  const std::string form = ": must be ttft, tpot or e2e, a colon and milliseconds, for example ttft:2000";
  for (const std::string pair : {"ttft", "itl:5", "50", "TTFT:5", "tpot=50"})
    EXPECT_EQ(refusal(with({"--goodput", pair})), "--goodput " + pair + form);
  EXPECT_EQ(refusal(with({"--goodput", "ttft:5,"})), "--goodput ''" + form);
  EXPECT_EQ(refusal(with({"--goodput", "e2e:5", "e2el:6"})), "--goodput e2el:6: is named twice");
  for (const std::string ms : {"0", "-1", "nan", "inf", "5ms", "1e13"})
    EXPECT_EQ(refusal(with({"--goodput", "tpot:" + ms})),
              "--goodput tpot " + ms + ": must be a number more than 0 and at most 1000000000000");
  EXPECT_EQ(refusal(with({"--max-goodput-rate"})),
            "--max-goodput-rate: needs --slo, for example --slo ttft:2000 tpot:50");
  EXPECT_EQ(refusal(with({"--goodput", "ttft:5", "--goodput-share", "0.9"})),
            "--goodput-share 0.9: needs --max-goodput-rate, whose search it ends");
  EXPECT_EQ(
      refusal(with({"--goodput", "ttft:5", "--max-goodput-rate", "--max-concurrency", "4"})),
      "--max-goodput-rate: excludes --max-concurrency 4, which holds requests back instead of offering them");
  EXPECT_EQ(
      refusal(with({"--goodput", "ttft:5", "--max-goodput-rate", "--executor", "numeric"})),
      "--max-goodput-rate: is for --executor modeled, numeric ranks tell no GPU's rate, only this machine's");
}

TEST(ServerArgs, RefusesWhatIsMissing) {
  EXPECT_EQ(refusal({}), "--model-path: is required, a catalogue name or a folder with a config.json");
  EXPECT_EQ(refusal({"--model-path", "m"}), "--hardware: is required, for example h200-sxm");
  EXPECT_EQ(refusal({"--model-path", "m", "--hardware", "h"}),
            "--trace: is required, or --dataset-name random for random lengths");
  EXPECT_EQ(refusal(with({}), true),
            "--attention-backends: is required, for example fa3,flashinfer,flashinfer+fa3");
}

TEST(ServerArgs, RefusesBadBackendLists) {
  EXPECT_EQ(refusal(with({"--attention-backends", "fa3,,triton"}), true),
            "--attention-backends '': must be a backend or a pair PREFILL+DECODE");
  EXPECT_EQ(refusal(with({"--attention-backends", "fa3+"}), true),
            "--attention-backends fa3+: must be a backend or a pair PREFILL+DECODE");
  EXPECT_EQ(refusal(with({"--attention-backends", "a+b+c"}), true),
            "--attention-backends a+b+c: must be a backend or a pair PREFILL+DECODE");
  EXPECT_EQ(refusal(with({"--attention-backends", "fa3,fa3"}), true),
            "--attention-backends fa3: is named twice");
  EXPECT_EQ(refusal(with({"--attention-backend", "fa3"}), true),
            "--attention-backend: unknown flag, did you mean --attention-backends?");
}

}  // namespace
}  // namespace tpsim::launch::server_args_test
