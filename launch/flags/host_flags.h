// The server's host: what it takes around the passes of its GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct HostArgs {
  std::vector<double> pass_gap_ms;         // of a pass, and of each request in it; empty: hidden
  std::optional<double> kernel_launch_us;  // of an eager pass; none: the hardware profile's
  std::vector<double> compile_seconds;     // at the first prefill of several requests, and of a whole chunk
  std::optional<double> compile_decode_seconds;
  // By a server that compiles for sizes that it meets; none: it has met all.
  std::optional<std::string> served_before;
  std::optional<std::uint32_t> launch_queue;  // 0: any number
  std::uint32_t tokenizer_worker_num = 1;
};

void declare_host(FlagSet& flags, HostArgs& args);

}  // namespace tpsim::launch
