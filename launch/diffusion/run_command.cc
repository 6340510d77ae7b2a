// A load on a deployment of a pipeline.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "launch/cli/flag_command.h"
#include "launch/cli/terminal.h"
#include "launch/diffusion/diffusion_commands.h"
#include "launch/diffusion/generation_prices.h"
#include "launch/diffusion/load.h"
#include "launch/diffusion/pipeline_report.h"
#include "launch/diffusion/request_queue.h"
#include "launch/diffusion/resolve.h"
#include "launch/flags/server_args.h"
#include "launch/report/text_table.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

struct RunArgs : PipelineArgs {
  PipelineLoad load;
};

// Between the nearest two, as NumPy does.
double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

Json spread(const std::vector<double>& values) {
  return {{"mean", std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size())},
          {"p50", percentile(values, 0.5)},
          {"p90", percentile(values, 0.9)},
          {"p99", percentile(values, 0.99)},
          {"max", *std::ranges::max_element(values)}};
}

Json load_json(const RunArgs& args, const Pipeline& pipeline, const ResolvedPipeline& resolved,
               const std::vector<QueuedRequest>& requests, const std::vector<ServedRequest>& served,
               GenerationPrices& prices) {
  Json json = generation_json(args, pipeline, resolved, prices.all().front().second);
  json["kind"] = "load";
  std::vector<double> latencies, waits;
  double end = 0, busy = 0, outputs = 0, good = 0;
  for (std::size_t i = 0; i < served.size(); ++i) {
    const ServedRequest& s = served[i];
    latencies.push_back(s.end - s.arrival);
    waits.push_back(s.start - s.arrival);
    end = std::max(end, s.end);
    busy += (s.end - s.start) / s.batch;
    outputs += requests[i].shape.outputs;
    if (args.load.goodput_ms && 1e3 * latencies.back() <= *args.load.goodput_ms) ++good;
  }
  json["requests"] = served.size();
  json["duration_seconds"] = end;
  json["latency"] = spread(latencies);
  json["waiting"] = spread(waits);
  json["requests_per_second"] = end > 0 ? static_cast<double>(served.size()) / end : 0;
  json["outputs_per_second"] = end > 0 ? outputs / end : 0;
  json["busy_fraction"] = end > 0 ? busy / end / resolved.parallel.dp : 0;
  if (args.load.goodput_ms) {
    json["goodput_ms"] = *args.load.goodput_ms;
    json["goodput_requests_per_second"] = end > 0 ? good / end : 0;
    json["goodput_share"] = good / static_cast<double>(served.size());
  }
  double peak = 0;
  for (const auto& [shape, generation] : prices.all()) peak = std::max(peak, generation.cost.peak_bytes);
  json["peak_bytes"] = peak;
  // The page shows so many requests; requests.csv has all.
  constexpr std::size_t kShown = 200;
  json["rows"] = Json::array();
  for (std::size_t i = 0; i < std::min(served.size(), kShown); ++i)
    json["rows"].push_back(
        {{"id", i}, {"arrival", served[i].arrival}, {"start", served[i].start}, {"end", served[i].end}});
  return json;
}

std::string requests_csv(const std::vector<QueuedRequest>& requests,
                         const std::vector<ServedRequest>& served) {
  std::string csv =
      "id,arrival,start,end,latency,replica,batch,width,height,num_frames,num_inference_steps,num_outputs_"
      "per_prompt\n";
  for (std::size_t i = 0; i < served.size(); ++i) {
    const ServedRequest& s = served[i];
    const rank::GenerationRequest& r = requests[i].shape;
    csv +=
        fmt::format("{},{:.9g},{:.9g},{:.9g},{:.9g},{},{},{},{},{},{},{}\n", i, s.arrival, s.start, s.end,
                    s.end - s.arrival, s.replica, s.batch, r.width, r.height, r.frames, r.steps, r.outputs);
  }
  return csv;
}

std::string load_text(const Json& report, bool colour) {
  std::string out =
      fmt::format("{} on {} x {}: {}\n\n", report["model"].get<std::string>(),
                  report["parallelism"]["num_gpus"].get<int>(), report["hardware"].get<std::string>(),
                  report["parallelism"]["text"].get<std::string>());
  TextTable table{.rows = {{"Seconds", "Mean", "p50", "p90", "p99", "Max"}}, .left_columns = 1};
  for (const auto& [name, key] : {std::pair{"Latency", "latency"}, std::pair{"Waiting", "waiting"}}) {
    const Json& s = report[key];
    table.rows.push_back({name, format_figure(s["mean"]), format_figure(s["p50"]), format_figure(s["p90"]),
                          format_figure(s["p99"]), format_figure(s["max"])});
  }
  out += to_text(table, colour);
  out += fmt::format(
      "\n{} requests in {} s: {:.4g} requests/s, {:.4g} outputs/s, replicas busy {:.1f} % of the time\n",
      report["requests"].get<int>(), format_figure(report["duration_seconds"]),
      report["requests_per_second"].get<double>(), report["outputs_per_second"].get<double>(),
      100 * report["busy_fraction"].get<double>());
  if (report.contains("goodput_ms"))
    out += fmt::format("Goodput: {:.4g} requests/s within {} ms, {:.1f} % of them\n",
                       report["goodput_requests_per_second"].get<double>(),
                       format_figure(report["goodput_ms"]), 100 * report["goodput_share"].get<double>());
  for (const Json& note : report["notes"]) out += fmt::format("Note: {}\n", note.get<std::string>());
  for (const Json& what : report["uncalibrated"])
    out += fmt::format("Uncalibrated: {}\n", what.get<std::string>());
  return out;
}

int run(const RunArgs& args, bool speaks) {
  set_up_logging(args, args.ignored, speaks);
  check_pipeline_args(args);
  const Pipeline pipeline = load_pipeline_of(args);
  ResolvedPipeline resolved = resolve(args, pipeline);
  const std::vector<QueuedRequest> requests =
      make_load(args.load, args.sampling, pipeline.config, resolved.parallel.num_gpus, resolved.notes);
  // PipelineConfig.supports_dynamic_batching: all that takes text alone.
  const bool batches = !pipeline.config.needs_image;
  if (args.batching_max_size > 1 && !batches)
    resolved.notes.push_back("--batching-max-size: requests with an input image are not merged");
  GenerationPrices prices(pipeline, resolved);
  const std::vector<ServedRequest> served = serve_queue(
      requests,
      {.replicas = resolved.parallel.dp,
       .max_outputs = args.batching_max_size,
       .delay_seconds = args.batching_delay_ms / 1e3,
       .batches = batches,
       .max_concurrency = args.load.max_concurrency},
      [&prices](const rank::GenerationRequest& shape) { return prices.fitting(shape).cost.seconds; });
  if (!speaks) return kDone;
  const Json report = load_json(args, pipeline, resolved, requests, served, prices);
  const std::optional<std::string> page =
      write_pipeline_report(args, report, {{"requests.csv", requests_csv(requests, served)}});
  if (args.quiet) return kDone;
  print(load_text(report, shows_colours(STDOUT_FILENO)));
  if (page) print(fmt::format("\nReport: {}\n", *page));
  return kDone;
}

}  // namespace

void add_pipeline_run(CLI::App& command, rank::MpiSession& session, Action& action) {
  add_flag_command<RunArgs>(
      command, action,
      [](FlagSet& flags, RunArgs& args) {
        declare_pipeline(flags, args);
        declare_sampling(flags, args);
        declare_pipeline_load(flags, args.load);
        declare_report(flags, args);
      },
      [&session](RunArgs& args, FlagSet&) { return run(args, session.process() == 0); });
}

}  // namespace tpsim::launch
