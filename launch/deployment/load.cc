#include "launch/deployment/subject.h"
#include "proto/base/text.h"

namespace tpsim::launch {

void write_load(const ServerArgs& args, Rows& rows) {
  if (args.stream_interval > 1) rows["stream_interval"] = std::to_string(args.stream_interval);
  rows["random_seed"] = std::to_string(args.random_seed);
  rows["trace"] = args.trace;
  rows["trace_format"] = args.trace_format;
  rows["dataset_name"] = args.dataset_name;
  rows["dataset_path"] = args.dataset_path;
  rows["num_prompts"] = args.num_prompts ? std::to_string(*args.num_prompts) : "all";
  rows["request_rate"] = args.request_rate ? format_real(*args.request_rate) : "trace";
  rows["max_concurrency"] = args.max_concurrency == 0 ? "none" : std::to_string(args.max_concurrency);
  rows["front_end"] = args.front_end.value_or("auto");
  rows["time_scale"] = format_real(args.time_scale.value_or(1.0));
  rows["seed"] = std::to_string(args.load_seed());
  rows["warmup_requests"] = std::to_string(args.warmup_requests);
  rows["flush_cache"] = on_off(args.flush_cache);
  if (args.dataset_name == "generated-shared-prefix") {
    const scheduler::SharedPrefixOptions& gsp = args.gsp;
    rows["num_prompts"] = std::to_string(gsp.num_groups * gsp.prompts_per_group);
    rows["gsp_num_groups"] = std::to_string(gsp.num_groups);
    rows["gsp_prompts_per_group"] = std::to_string(gsp.prompts_per_group);
    rows["gsp_system_prompt_len"] = std::to_string(gsp.system_prompt_len);
    rows["gsp_question_len"] = std::to_string(gsp.question_len);
    rows["gsp_output_len"] = std::to_string(gsp.output_len);
    rows["gsp_range_ratio"] = format_real(gsp.range_ratio);
    rows["gsp_num_turns"] = std::to_string(gsp.num_turns);
    rows["gsp_ordered"] = on_off(gsp.ordered);
    rows["gsp_zipf_alpha"] = gsp.zipf_alpha ? format_real(*gsp.zipf_alpha) : "none";
  } else if (!args.dataset_name.empty()) {
    rows["num_prompts"] = std::to_string(args.num_prompts.value_or(1000));
  }
  if (args.dataset_name == "image") {
    rows["image_count"] = std::to_string(args.images.image_count.value_or(1));
    rows["random_image_count"] = on_off(args.images.random_image_count);
    rows["image_content"] = args.images.image_content.empty() ? "random" : args.images.image_content;
  }
  if (args.dataset_name == "image" || args.images.image_resolution)
    rows["image_resolution"] = args.images.image_resolution.value_or("1080p");
  if (args.dataset_name.starts_with("random") || args.dataset_name == "image") {
    rows["random_input_len"] = std::to_string(args.random_input_len.value_or(1024));
    rows["random_output_len"] = std::to_string(args.random_output_len.value_or(1024));
    rows["random_range_ratio"] = format_real(args.random_range_ratio.value_or(0));
  }
  if (args.goodput.any()) rows["goodput"] = to_string(args.goodput);
  if (!args.dataset_name.empty() && args.dataset_name != "mooncake" && !args.request_rate)
    rows["request_rate"] = "inf";
  if (args.request_rate) rows["request_interval"] = args.fixed_interval ? "fixed" : "poisson";
}

}  // namespace tpsim::launch
