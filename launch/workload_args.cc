#include "launch/workload_args.h"

#include <filesystem>

#include "scheduler/workload/synthetic.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {

scheduler::Workload load_workload(const ServerArgs& args) {
  if (args.dataset_name.empty())
    return scheduler::read_trace(std::filesystem::path(args.trace),
                                 {.format = args.trace_format,
                                  .num_prompts = static_cast<std::size_t>(args.num_prompts.value_or(0)),
                                  .sort = false});
  scheduler::RandomOptions options;
  options.num_prompts = args.num_prompts.value_or(options.num_prompts);
  options.random_input_len = args.random_input_len.value_or(options.random_input_len);
  options.random_output_len = args.random_output_len.value_or(options.random_output_len);
  options.random_range_ratio = args.random_range_ratio.value_or(options.random_range_ratio);
  options.seed = args.random_seed;
  return scheduler::make_random_workload(options);
}

scheduler::LoadConfig load_config(const ServerArgs& args) {
  scheduler::LoadConfig config;
  config.time_scale = args.time_scale.value_or(1.0);
  config.request_rate = args.request_rate;
  config.fixed_interval = args.fixed_interval;
  config.max_concurrency = args.max_concurrency;
  return config;
}

}  // namespace tpsim::launch
