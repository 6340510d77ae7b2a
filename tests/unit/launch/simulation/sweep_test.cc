#include "launch/simulation/sweep.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch::sweep_test {
namespace {

struct Parsed {
  CLI::App app{"test", "compare"};
  FlagSet flags{app};
  ServerArgs args;
};

Sweep sweep_of(std::vector<std::string> extra, Parsed& parsed) {
  std::vector<std::string> words = {"--model-path", "m", "--hardware", "h", "--trace", "t"};
  if (std::find(extra.begin(), extra.end(), "--hardware") != extra.end())
    words.erase(words.begin() + 2, words.begin() + 4);
  words.insert(words.end(), extra.begin(), extra.end());
  declare_server_flags(parsed.flags, parsed.args, /*compare=*/true);
  std::reverse(words.begin(), words.end());
  parsed.app.parse(words);
  parsed.flags.read();
  return expand_sweep(parsed.flags, parsed.args);
}

std::string refused(const std::vector<std::string>& extra) {
  try {
    Parsed parsed;
    sweep_of(extra, parsed);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Sweep, IsTheProductOfAllListsAndBackends) {
  Parsed parsed;
  const Sweep sweep = sweep_of({"--tp", "4,8", "--attention-backends", "fa3,flashinfer+fa3", "--request-rate",
                                "2,inf,0.5", "--max-total-tokens", "5000"},
                               parsed);
  ASSERT_EQ(sweep.settings.size(), 12u);
  ASSERT_EQ(sweep.axes.axes_size(), 3);
  EXPECT_EQ(sweep.axes.axes(0).flag(), "attention_backends");
  EXPECT_EQ(sweep.axes.axes(1).flag(), "tp_size");
  EXPECT_EQ(sweep.axes.axes(2).flag(), "request_rate");
  EXPECT_EQ(sweep.axes.axes(2).values(1), "inf");
  EXPECT_EQ(describe(sweep), "12 settings: 2 of --attention-backends x 2 of --tp-size x 3 of --request-rate");
  std::set<std::map<std::string, std::string>> different;
  for (const Setting& setting : sweep.settings) {
    different.insert(setting.values);
    EXPECT_EQ(setting.args.max_total_tokens, 5000u);
    EXPECT_EQ(std::to_string(setting.args.tp_size), setting.values.at("tp_size"));
    ASSERT_EQ(setting.args.attention_backends.size(), 1u);
    EXPECT_EQ(setting.args.attention_backends[0].name(), setting.values.at("attention_backends"));
    EXPECT_EQ(std::isinf(*setting.args.request_rate), setting.values.at("request_rate") == "inf");
  }
  EXPECT_EQ(different.size(), 12u);
  EXPECT_EQ(sweep.settings[1].values.at("request_rate"), "inf");  // the last axis varies fastest
}

TEST(Sweep, OneBackendOrNoneIsNoAxis) {
  Parsed one;
  const Sweep with = sweep_of({"--attention-backends", "triton", "--page-size", "1,64"}, one);
  ASSERT_EQ(with.settings.size(), 2u);
  EXPECT_EQ(with.axes.axes_size(), 1);
  EXPECT_EQ(with.settings[1].args.attention_backends.at(0).name(), "triton");
  Parsed none;
  EXPECT_TRUE(sweep_of({"--page-size", "1,64"}, none).settings[0].args.attention_backends.empty());
}

TEST(Sweep, EverySweepableFlagTakesAList) {
  const std::map<std::string_view, std::string> values = {
      {"--hardware", "h200-sxm,b200"},
      {"--kv-cache-dtype", "auto,fp8_e4m3"},
      {"--mem-fraction-static", "0.7,0.8"},
      {"--schedule-policy", "lpm,fcfs"},
      {"--schedule-conservativeness", "0.3,1"},
      {"--radix-eviction-policy", "lru,lfu"},
      {"--router-policy", "random,cache_aware"},
      {"--router-cache-threshold", "0.3,0.5"},
      {"--load-balance-method", "round_robin,total_tokens"},
      {"--prefill-policy", "random,cache_aware"},
      {"--decode-policy", "random,cache_aware"},
      {"--kv-link", "nvlink,network"},
      {"--moe-a2a-backend", "none,deepep"},
      {"--deepep-mode", "auto,normal"},
      {"--expert-distribution", "uniform,power_law:1.1"},
      {"--dtype", "bfloat16,float16"},
      {"--nsa-prefill-backend", "fa3,tilelang"},
      {"--nsa-decode-backend", "fa3,tilelang"},
      {"--moe-runner-backend", "auto,triton"},
      {"--fp8-gemm-backend", "auto,triton"},
      {"--fp4-gemm-backend", "auto,flashinfer_cutlass"},
      {"--flashinfer-allreduce-fusion-backend", "trtllm,mnnvl"},
      {"--swa-full-tokens-ratio", "0.5,0.8"},
      {"--mamba-ssm-dtype", "float32,bfloat16"},
      {"--mamba-radix-cache-strategy", "no_buffer,extra_buffer"},
      {"--linear-attn-backend", "triton,cutedsl"},
      {"--linear-attn-decode-backend", "triton,cutedsl"},
      {"--linear-attn-prefill-backend", "triton,cutedsl"},
      {"--sglang-version", "0.5.23,0.5.14"},
      {"--retraction-policy", "length,priority"},
      {"--speculative-algorithm", "EAGLE,NGRAM"},
      {"--speculative-attention-mode", "prefill,decode"},
      {"--speculative-draft-attention-backend", "fa3,triton"},
      {"--mm-attention-backend", "fa3,sdpa"},
      {"--quantization", "fp8,w8a8_fp8"},
      {"--hicache-write-policy", "write_back,write_through"},
      {"--hicache-io-backend", "kernel,direct"},
      {"--hicache-mem-layout", "layer_first,page_first"},
      {"--hicache-storage-prefetch-policy", "best_effort,timeout"},
  };
  for (const std::string_view flag : sweepable_flags()) {
    const auto value = values.find(flag);
    const bool on_off = flag.starts_with("--enable-") || flag.starts_with("--disable-") ||
                        flag.starts_with("--enforce-") || flag.ends_with("-ragged") ||
                        flag == "--mm-enable-dp-encoder" || flag == "--pd-disaggregation";
    Parsed parsed;
    const Sweep sweep =
        sweep_of(on_off                  ? std::vector<std::string>{std::string(flag) + "=true,false"}
                 : value == values.end() ? std::vector<std::string>{std::string(flag), "16,32"}
                                         : std::vector<std::string>{std::string(flag), value->second},
                 parsed);
    EXPECT_EQ(sweep.settings.size(), 2u) << flag;
  }
}

TEST(Sweep, WithoutAListThereIsNone) {
  Parsed parsed;
  EXPECT_TRUE(sweep_of({"--attention-backends", "fa3,triton", "--tp", "8"}, parsed).settings.empty());
}

TEST(Sweep, RefusesInOneSentence) {
  EXPECT_EQ(refused({"--page-size", "1,48"}), "--page-size 48: must be 1, 16, 32, 64 or 128");
  EXPECT_EQ(refused({"--tp", "4,,8"}), "--tp-size 4,,8: a value of the list is empty");
  EXPECT_EQ(refused({"--tp", "4,"}), "--tp-size 4,: a value of the list is empty");
  EXPECT_EQ(refused({"--tp", "4,8,4"}), "--tp-size 4,8,4: 4 is listed twice");
  std::string many = "1";
  for (int i = 2; i <= 200; ++i) many += "," + std::to_string(i);
  EXPECT_EQ(refused({"--max-concurrency", many, "--tp", "1,2,4"}),
            "3 of --tp-size x 200 of --max-concurrency make 600 settings, at most 512 are compared at once: "
            "shorten a list");
  EXPECT_EQ(refusal({"--model-path", "m", "--hardware", "h", "--trace", "t", "--tp", "4,8"}),
            "--tp-size 4,8: takes one value here; `tpsim compare` takes a list and runs every value of it");
  EXPECT_EQ(
      refusal({"--model-path", "m", "--hardware", "h", "--trace", "t", "--attention-backends", "fa3",
               "--jobs", "2"},
              true),
      "--jobs 2: shares out the settings of a sweep or the replicas of a fleet, give a flag a list such as "
      "--tp 4,8, or --dp-size");
}

}  // namespace
}  // namespace tpsim::launch::sweep_test
