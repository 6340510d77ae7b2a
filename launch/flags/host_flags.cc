#include "launch/flags/host_flags.h"

#include <cstddef>
#include <string_view>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

FlagSet::ReadValue pair_of_reals(std::vector<double>& out) {
  return [&out](std::string_view flag, const std::string& value) {
    const std::size_t comma = value.find(',');
    if (comma == std::string::npos) throw_user_error("{} {}: must be two numbers, A,B", flag, value);
    constexpr double kMost = 1e6;
    out = {parse_real(flag, value.substr(0, comma), 0, true, kMost, true),
           parse_real(flag, value.substr(comma + 1), 0, true, kMost, true)};
  };
}

}  // namespace

void declare_host(FlagSet& flags, HostArgs& args) {
  flags.add_value("--pass-gap-ms", "PASS,REQUEST",
                  "host time between two passes that overlap does not hide, of a pass and of each request "
                  "that decodes in it (default 0,0)",
                  pair_of_reals(args.pass_gap_ms));
  flags.add_value("--kernel-launch-us", "US",
                  "host time of launching one kernel of an eager pass (default: the GPU's, as measured with "
                  "SGLang 0.5.12)",
                  real(args.kernel_launch_us, 0, false, 1e6, true));
  flags.add_value("--compile-seconds", "BATCH,CHUNK",
                  "what a server that was not warmed up compiles at its first prefill of several requests, "
                  "and of a whole chunk (default 0,0)",
                  pair_of_reals(args.compile_seconds));
  flags.add_value(
      "--compile-decode-seconds", "S",
      "what such a server compiles at its first captured decode batch of several requests (default 0)",
      real(args.compile_decode_seconds, 0, true, 3600, true));
  flags.add_value(
      "--served-before", "LOADS",
      "of a server that compiles kernels for batches of sizes that it meets first: what it served since it "
      "started, as closed:1024:256:16:48,azure:0:60:1, or warmup (default: it has met every size)",
      [&args](std::string_view, const std::string& value) { args.served_before = value; });
  flags.add_value("--launch-queue", "N",
                  "launches of kernels and graphs that wait on the device before the host waits for room, 0 "
                  "for any number (default 264 on NVIDIA's GPUs)",
                  count(args.launch_queue, 0, 1'000'000));
  flags.add_value("--tokenizer-worker-num", "N",
                  "processes that tokenize prompts, of --front-end text (default 1)",
                  count(args.tokenizer_worker_num, 1, 1024));
}

}  // namespace tpsim::launch
