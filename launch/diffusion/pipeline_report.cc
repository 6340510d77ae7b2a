#include "launch/diffusion/pipeline_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "launch/diffusion/likely.h"
#include "launch/report/html_page.h"
#include "launch/report/report_dir.h"
#include "launch/report/text_table.h"

namespace tpsim::launch {
namespace {

std::string gib(double bytes) { return fmt::format("{:.1f}", bytes / kGib); }

std::string duration(double seconds) {
  return seconds >= 1 || seconds == 0 ? format_figure(seconds) + " s" : format_figure(1e3 * seconds) + " ms";
}

std::string_view name_of(rank::Residency residency) {
  switch (residency) {
    case rank::Residency::kComponentOffload:
      return "component-offload";
    case rank::Residency::kLayerwiseOffload:
      return "layerwise-offload";
    default:
      return "resident";
  }
}

Json stage_json(const rank::StageCost& stage) {
  Json json = {{"name", stage.name},
               {"component", stage.component},
               {"seconds", stage.seconds},
               {"device_seconds", stage.device_seconds},
               {"host_seconds", stage.host_seconds},
               {"passes", stage.passes},
               {"sent_bytes", stage.sent_bytes},
               {"host_link_bytes", stage.host_link_bytes},
               {"peak_bytes", stage.peak_bytes}};
  json["operators"] = Json::array();
  for (const rank::OperatorShare& o : stage.operators)
    json["operators"].push_back({{"name", o.name},
                                 {"seconds", o.seconds},
                                 {"flops", o.flops},
                                 {"bytes", o.bytes},
                                 {"kernels", o.kernels}});
  return json;
}

}  // namespace

std::string parallelism_text(const Parallelism& p) {
  std::vector<std::string> parts;
  for (const auto& [name, degree] :
       {std::pair{"replicas", p.dp}, std::pair{"guidance", p.cfg}, std::pair{"tensor", p.tp},
        std::pair{"ulysses", p.ulysses}, std::pair{"ring", p.ring}, std::pair{"kv gather", p.kv_gather}}) {
    if (degree > 1) parts.push_back(fmt::format("{} {}", name, degree));
  }
  return parts.empty() ? "one GPU" : fmt::format("{}", fmt::join(parts, " x "));
}

Json generation_json(const PipelineArgs& args, const Pipeline& pipeline, const ResolvedPipeline& resolved,
                     const Generation& generation) {
  const rank::GenerationRequest& r = resolved.request;
  const Parallelism& p = resolved.parallel;
  Json json = {{"version", 1},
               {"kind", "generation"},
               {"model", args.model_path},
               {"pipeline", pipeline.config.class_name},
               {"hardware", pipeline.hardware.name()},
               {"request",
                {{"width", r.width},
                 {"height", r.height},
                 {"num_frames", r.frames},
                 {"num_inference_steps", r.steps},
                 {"guided", r.guided},
                 {"num_outputs_per_prompt", r.outputs},
                 {"prompts", args.sampling.prompts},
                 {"images", r.images},
                 {"computed_share", resolved.plan.computed_share}}},
               {"parallelism",
                {{"num_gpus", p.num_gpus},
                 {"dp_size", p.dp},
                 {"cfg_parallel_size", p.cfg},
                 {"tp_size", p.tp},
                 {"sp_degree", p.sp},
                 {"ulysses_degree", p.ulysses},
                 {"ring_degree", p.ring},
                 {"kv_gather_degree", p.kv_gather},
                 {"text", parallelism_text(p)}}}};
  json["attention"] = Json::array();
  for (const AttentionRow& row : resolved.attention)
    json["attention"].push_back(
        {{"component", row.component}, {"role", row.role}, {"backend", row.backend}, {"reason", row.reason}});
  json["components"] = Json::array();
  for (const rank::PipelineComponent& c : pipeline.config.components) {
    const auto at = resolved.plan.residency.find(c.name);
    if (c.parameters == 0 || at == resolved.plan.residency.end()) continue;
    json["components"].push_back(
        {{"name", c.name},
         {"class", c.class_name},
         {"parameters", c.parameters},
         {"bytes", std::llround(static_cast<double>(c.loaded) * c.bytes_per_parameter)},
         {"residency", name_of(at->second)}});
  }
  const rank::GenerationCost& cost = generation.cost;
  json["stages"] = Json::array();
  for (const rank::StageCost& stage : cost.stages) json["stages"].push_back(stage_json(stage));
  json["seconds"] = cost.seconds;
  json["step_seconds"] = cost.step_seconds;
  json["likely"] =
      likely_json(generation_traits(pipeline.config, resolved.plan, r, pipeline.hardware.name()), cost);
  json["total_seconds"] = cost.seconds * args.sampling.prompts;
  json["gpu_seconds_per_output"] = cost.seconds * p.num_gpus / p.dp / std::max<std::uint32_t>(1, r.outputs);
  json["peak_bytes"] = cost.peak_bytes;
  json["memory_bytes"] = pipeline.hardware.memory_bytes();
  json["fits"] = generation.fits;
  if (!generation.fits) json["too_large"] = generation.too_large;
  json["notes"] = resolved.notes;
  json["uncalibrated"] = cost.uncalibrated;
  return json;
}

std::string generation_text(const Json& report, bool colour) {
  const Json& r = report["request"];
  const Json& p = report["parallelism"];
  const auto whole = [](const Json& value) { return value.get<std::uint64_t>(); };
  std::string out =
      fmt::format("{} on {} x {}: {}\n", report["model"].get<std::string>(), whole(p["num_gpus"]),
                  report["hardware"].get<std::string>(), p["text"].get<std::string>());
  out += fmt::format("{} x {}{}, {} steps{}{}\n", whole(r["width"]), whole(r["height"]),
                     whole(r["num_frames"]) > 1 ? fmt::format(", {} frames", whole(r["num_frames"])) : "",
                     whole(r["num_inference_steps"]), r["guided"].get<bool>() ? ", guided" : "",
                     whole(r["num_outputs_per_prompt"]) > 1
                         ? fmt::format(", {} outputs", whole(r["num_outputs_per_prompt"]))
                         : "");
  const double seconds = report["seconds"];
  TextTable stages{.rows = {{"Stage", "Component", "Seconds", "Share", "GPU", "Host", "Links GB",
                             "Host link GB", "Peak GiB"}},
                   .left_columns = 2};
  for (const Json& s : report["stages"])
    stages.rows.push_back(
        {s["name"], s["component"], format_figure(s["seconds"]),
         fmt::format("{:.1f} %", seconds > 0 ? 100 * s["seconds"].get<double>() / seconds : 0),
         format_figure(s["device_seconds"]), format_figure(s["host_seconds"]),
         format_figure(s["sent_bytes"].get<double>() / 1e9),
         format_figure(s["host_link_bytes"].get<double>() / 1e9), gib(s["peak_bytes"])});
  stages.rows.push_back(
      {"Total", "", format_figure(seconds), "100.0 %", "", "", "", "", gib(report["peak_bytes"])});
  out += "\n" + to_text(stages, colour);
  out += fmt::format(
      "\nA denoising step takes {}; an output {:.1f} GPU seconds. Memory of a GPU: {} of {} GiB.\n",
      duration(report["step_seconds"]), report["gpu_seconds_per_output"].get<double>(),
      gib(report["peak_bytes"]), gib(report["memory_bytes"]));
  if (const std::string likely = likely_text(report["likely"], "seconds"); !likely.empty())
    out += fmt::format("All of it: {}.\n", likely);
  if (whole(r["prompts"]) > 1)
    out += fmt::format("{} prompts, one after the other: {}.\n", whole(r["prompts"]),
                       duration(report["total_seconds"]));
  TextTable operators{.rows = {{"Stage", "Operator", "Seconds", "Share", "TFLOP/s", "Kernels"}},
                      .left_columns = 2};
  for (const Json& s : report["stages"]) {
    for (const Json& o : s["operators"]) {
      const double of = o["seconds"];
      operators.rows.push_back({s["component"], o["name"], format_figure(of),
                                fmt::format("{:.1f} %", seconds > 0 ? 100 * of / seconds : 0),
                                of > 0 ? fmt::format("{:.0f}", o["flops"].get<double>() / of / 1e12) : "",
                                fmt::format("{:.0f}", o["kernels"].get<double>())});
    }
  }
  if (operators.rows.size() > 1) out += "\n" + to_text(operators, colour);
  out += "\nAttention\n";
  TextTable attention{.rows = {{"Component", "Role", "Backend", "Reason"}}, .left_columns = 4};
  for (const Json& a : report["attention"])
    attention.rows.push_back({a["component"], a["role"], a["backend"], a["reason"]});
  out += to_text(attention, colour);
  out += "\nWeights\n";
  TextTable weights{.rows = {{"Component", "Where", "GiB"}}, .left_columns = 2};
  for (const Json& c : report["components"])
    weights.rows.push_back({c["name"], c["residency"], gib(c["bytes"].get<double>())});
  out += to_text(weights, colour);
  for (const Json& note : report["notes"]) out += fmt::format("Note: {}\n", note.get<std::string>());
  if (!report["fits"].get<bool>())
    out += fmt::format("Does not fit: {}\n", report["too_large"].get<std::string>());
  for (const Json& what : report["uncalibrated"])
    out += fmt::format("Uncalibrated: {}\n", what.get<std::string>());
  return out;
}

std::optional<std::string> write_pipeline_report(
    const PipelineArgs& args, const Json& report,
    const std::vector<std::pair<std::string, std::string>>& files) {
  if (args.report_dir.empty()) return std::nullopt;
  ReportDir folder(args.report_dir);
  folder.open("report.json").write(report.dump(2) + "\n");
  folder.open("report.html").write(fill_page(pipeline_template(), report));
  for (const auto& [name, text] : files) folder.open(name).write(text);
  folder.commit_all();
  return (folder.path() / "report.html").string();
}

}  // namespace tpsim::launch
