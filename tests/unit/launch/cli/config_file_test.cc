#include "launch/cli/config_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/unit/launch/deployment/parse.h"

namespace tpsim::launch {
namespace {

class ConfigFile : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  const std::string& write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  // The refusal with the path cut off.
  std::string said(const std::string& text) {
    const std::string sentence = refusal({"--config", write(text)});
    const std::size_t at = sentence.find(path_);
    return at == std::string::npos ? sentence : sentence.substr(at + path_.size());
  }

  std::string path_ = testing::TempDir() + "tpsim_config_" + std::to_string(getpid()) + ".yaml";
};

constexpr char kBase[] = "model-path: llama-3.1-8b\nhardware: h200-sxm\ntrace: t.jsonl\n";

TEST_F(ConfigFile, FillsWhatTheCommandLineLeavesOpen) {
  const std::string& path =
      write(std::string(kBase) +
            "tp: 8\npage_size: 64\nenable-mixed-chunk: true\ndisable-radix-cache: false\n"
            "cuda-graph-bs: [8, 1, 4]\nrank-slowdown: [\"3:1.5\"]\n");
  const ServerArgs args = parse({"--config", path, "--page-size", "16", "--tp-size", "4"});
  EXPECT_EQ(args.model_path, "llama-3.1-8b");
  EXPECT_EQ(args.tp_size, 4u);
  EXPECT_EQ(args.page_size, 16u);
  EXPECT_TRUE(args.enable_mixed_chunk);
  EXPECT_FALSE(args.disable_radix_cache);
  EXPECT_EQ(args.cuda_graph_bs, (std::vector<std::uint32_t>{1, 4, 8}));
  EXPECT_EQ(args.rank_slowdown, (std::vector<std::string>{"3:1.5"}));
}

TEST_F(ConfigFile, AListOnTheCommandLineReplacesTheFilesList) {
  const std::string& path = write(std::string(kBase) + "cuda-graph-bs: [1, 2]\n");
  EXPECT_EQ(parse({"--config", path, "--cuda-graph-bs", "64"}).cuda_graph_bs,
            (std::vector<std::uint32_t>{64}));
}

TEST_F(ConfigFile, TakesFlagsOfALaunchLine) {
  const std::string& path =
      write(std::string(kBase) + "host: 0.0.0.0\ntrust_remote_code: true\ndp-size: 1\nenable-lora: false\n");
  EXPECT_EQ(parse({"--config", path}).ignored_flags,
            (std::vector<std::string>{"--host", "--trust-remote-code"}));
  EXPECT_EQ(
      said("dcp-size: 2\n"),
      ":1: --dcp-size: of parallelism, --tp, --ep-size, --dp-size and what belongs to them are simulated; "
      "leave it out");
  EXPECT_EQ(said("enable-lora: true\n"), ":1: --enable-lora: LoRA adapters are not simulated; leave it out");
}

TEST_F(ConfigFile, IsOneMapping) {
  EXPECT_EQ(said(std::string(kBase) + "---\ntp: 8\n"),
            ":4: begins a second document; give one mapping of flags to values");
  EXPECT_EQ(said("# nothing\n\n"), ": names no flag; one `flag: value` a line is expected");
  EXPECT_EQ(said("config: other.yaml\n"), ":1: config: not an option of `tpsim run`");
  EXPECT_EQ(refusal({"--config", ""}), "--config: the value is empty, name a YAML file");
}

TEST_F(ConfigFile, RefusalsNameFileAndLine) {
  EXPECT_EQ(said("tp: 8\npage-sise: 16\n"),
            ":2: page-sise: not an option of `tpsim run`, did you mean page-size?");
  EXPECT_EQ(said("tp: 8\nfrobnicate-all: 16\n"), ":2: frobnicate-all: not an option of `tpsim run`");
  EXPECT_EQ(said("\n\npage-size: 48\n"), ":3: --page-size 48: must be 1, 16, 32, 64 or 128");
  EXPECT_EQ(said("random-seed: [1, 2]\n"), ":1: random-seed: takes one value, not a list of 2");
  EXPECT_EQ(
      said("tp: [1, 2]\n"),
      ":1: --tp-size 1,2: takes one value here; `tpsim compare` takes a list and runs every value of it");
  EXPECT_EQ(said("tp: 1\ntp: 2\n"), ":2: tp is given twice");
  EXPECT_EQ(said("tp: {a: {}}\n"), ":1: tp.a: a value, or a list of values, is expected");
  EXPECT_EQ(said("tp: {a: 1}\ntp.a: 2\n"), ":2: tp.a is given twice");
  EXPECT_EQ(said("tp:\n"), ":1: tp: a value, or a list of values, is expected");
  EXPECT_EQ(said("tp: [[1]]\n"), ":1: tp: a list may hold plain values only");
  EXPECT_EQ(said("just words\n"), ":1: a mapping is expected, one `flag: value` a line");
  EXPECT_EQ(said("enable-mixed-chunk: 7\n"), ":1: --enable-mixed-chunk 7: must be true or false");
  EXPECT_EQ(said("tp: 1\nconfig: other.yaml\n").substr(0, 11), ":2: config:");
  EXPECT_EQ(said("speculative-adaptive: true\n"),
            ":1: --speculative-adaptive: a run keeps its --speculative-num-steps, whatever is accepted; "
            "`tpsim compare` takes a list of them");
  EXPECT_EQ(said("tp: 1\n  bad: [\n").substr(0, 3), ":2:");
  EXPECT_EQ(said(""), ": the file is empty, a YAML mapping of flags to values is expected");
}

TEST_F(ConfigFile, ANamedFileMustBeReadable) {
  EXPECT_EQ(refusal({"--config", "/nonexistent/x.yaml"}),
            "--config /nonexistent/x.yaml: No such file or directory");
  EXPECT_NE(refusal({"--config", "/"}), "accepted");
}

}  // namespace
}  // namespace tpsim::launch
