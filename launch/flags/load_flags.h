// Traces, datasets and arrivals, and the service levels of a load: --goodput, with the KEY:VALUE pairs of
// vLLM's serving benchmark in milliseconds, and the search by it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/flag_set.h"
#include "scheduler/config.h"
#include "scheduler/records.h"
#include "scheduler/workload/benchmark_datasets.h"

namespace tpsim::launch {

struct LoadArgs {
  std::string trace;
  std::string trace_format = "auto";
  std::string dataset_name;  // of SGLang's benchmark; empty: --trace
  std::string dataset_path;  // the file of sharegpt and mooncake
  bool use_trace_timestamps = false;
  std::vector<scheduler::RandomOptions> runs_before;  // of --dataset-name random
  std::uint32_t warmup_requests = 0;
  bool flush_cache = false;
  std::optional<scheduler::SessionMode> session_mode;  // default closed
  std::optional<std::uint64_t> num_prompts;
  std::optional<std::uint32_t> random_input_len;   // default 1024
  std::optional<std::uint32_t> random_output_len;  // default 1024
  std::optional<double> random_range_ratio;        // default 0
  scheduler::SharedPrefixOptions gsp;              // its seed is load_seed()
  std::string gsp_flag;                            // the first --gsp-* value that was given; empty: none
  bool gsp_zipf = false;
  std::optional<double> request_rate;
  bool fixed_interval = false;
  std::uint32_t max_concurrency = 0;
  std::optional<std::string> front_end;  // default: by the workload (launch/simulation/workload_args.cc)
  std::optional<double> client_seconds;  // default: what was fitted (scheduler/config.h); serve: 0
  std::optional<double> tokenize_us;     // of a token of a prompt; default: the host's
  std::uint32_t stream_interval = 1;
  std::optional<double> time_scale;  // default 1
  std::uint32_t random_seed = 1;
  std::optional<std::uint32_t> seed;
  scheduler::ServiceLevels goodput;
  bool max_goodput_rate = false;
  std::optional<double> goodput_share;  // default 0.99

  // Of dataset and arrivals.
  std::uint32_t load_seed() const { return seed.value_or(random_seed); }
};

// `images`: adds the flags of a dataset's images, in their place of the help.
void declare_load(FlagSet& flags, LoadArgs& args, const std::function<void()>& images);
void check_load(const LoadArgs& args);
void check_service_levels(const LoadArgs& args, bool numeric);
// What numeric execution takes no part of.
void check_numeric_load(const LoadArgs& args);

std::string_view to_string(scheduler::SessionMode mode);

// "ttft:2000 tpot:50".
std::string to_string(const scheduler::ServiceLevels& levels);

}  // namespace tpsim::launch
