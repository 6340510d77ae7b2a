#include "launch/lab/generations/published_figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "launch/cli/flag_command.h"
#include "launch/cli/shell_line.h"
#include "launch/diffusion/likely.h"
#include "launch/diffusion/pipeline_args.h"
#include "launch/diffusion/resolve.h"
#include "launch/lab/generations/asked_generation.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/published_generations.h"
#include "proto/base/error.h"
#include "rank/cost/hardware.h"
#include "rank/diffusion/calibration.h"

namespace tpsim::launch {
namespace {

struct Predicted {
  double seconds = 0;
  std::optional<double> peak_gib = std::nullopt;
  std::string model{}, backend{}, command{};
  std::vector<std::string> uncalibrated{};
  std::optional<proto::LoadTraits> traits = std::nullopt;  // of what a generation was asked for
};

std::string_view stage_name(TimedPart part) {
  switch (part) {
    case TimedPart::kTextEncoding:
      return "TextEncodingStage";
    case TimedPart::kImageEncoding:
      return "ImageVAEEncodingStage";
    case TimedPart::kDecoding:
      return "DecodingStage";
    default:
      return "DenoisingStage";
  }
}

double seconds_of(const rank::GenerationCost& cost, TimedPart part) {
  if (part == TimedPart::kEndToEnd) return cost.seconds;
  if (part == TimedPart::kStep) return cost.step_seconds;
  const auto stage = std::ranges::find(cost.stages, stage_name(part), &rank::StageCost::name);
  if (stage == cost.stages.end()) throw_user_error("tpsim's generation has no {}", stage_name(part));
  return stage->seconds;
}

Predicted predict_generation(const PublishedGeneration& row, TimedPart part) {
  const std::vector<std::string> flags = generation_flags(row, part);
  PipelineArgs args;
  read_words("generate", flags, [&args](FlagSet& set) {
    declare_pipeline(set, args);
    declare_sampling(set, args);
  });
  const Pipeline pipeline = load_pipeline_of(args);
  const ResolvedPipeline resolved = resolve(args, pipeline);
  const Generation generation = price(pipeline, resolved, resolved.request);
  Predicted out{.seconds = seconds_of(generation.cost, part),
                .model = pipeline.config.name,
                .command = shell_command(flags),
                .uncalibrated = generation.cost.uncalibrated};
  if (part == TimedPart::kEndToEnd || part == TimedPart::kDenoising || part == TimedPart::kStep)
    out.traits =
        generation_traits(pipeline.config, resolved.plan, resolved.request, pipeline.hardware.name());
  // What is published is what PyTorch allocates, without CUDA's context.
  if (part == TimedPart::kEndToEnd)
    out.peak_gib = (generation.cost.peak_bytes - rank::diffusion::kContextBytes) / kGib;
  const auto of_transformer = std::ranges::find(resolved.attention, "transformer", &AttentionRow::component);
  if (of_transformer != resolved.attention.end()) out.backend = of_transformer->backend;
  return out;
}

// One call of a kernel.
Predicted predict_attention(const PublishedGeneration& row) {
  const std::string gpu = hardware_of(row);
  const AskedBackend asked = backend_of(row, gpu);
  if (asked.name.empty()) throw_user_error("its attention backend was not published");
  const proto::HardwareProfile profile = rank::load_hardware(gpu);
  const attention::DiffusionBackend& backend = attention::find_diffusion_backend("attn_backend", asked.name);
  const std::optional<attention::GpuGeneration> generation =
      attention::parse_gpu_generation(profile.architecture());
  if (backend.sparse || !generation || !backend.generations.contains(*generation))
    throw_user_error("{} does not run there by itself", backend.name);
  const attention::DiffusionAttention attention(
      profile, backend, attention::read_diffusion_parameters(backend, asked.settings));
  const AskedAttention call = attention_call(row);
  attention::DiffusionCall layer{.batch = call.batch,
                                 .queries = call.tokens,
                                 .keys = call.tokens,
                                 .heads = call.heads,
                                 .head_dim = call.head_dim,
                                 .kernel_alone = row.timed.find("kernel only") != std::string::npos};
  Predicted out{.seconds = attention.layer(layer).seconds, .model = row.model, .backend = asked.name};
  if (!attention.measured()) out.uncalibrated = {asked.name};
  return out;
}

Predicted predict(const PublishedGeneration& row, TimedPart part) {
  return part == TimedPart::kAttention ? predict_attention(row) : predict_generation(row, part);
}

// Seconds, or those that its operations a second say: "259 TOPS (4*L^2*d*heads / time)".
std::optional<double> measured_seconds(const PublishedGeneration& row, TimedPart part) {
  const std::size_t unit = row.value_other.find(" TOPS (4*L^2*d*heads");
  if (row.seconds || part != TimedPart::kAttention || unit == std::string::npos) return row.seconds;
  const AskedAttention call = attention_call(row);
  const double rate = std::strtod(row.value_other.c_str(), nullptr) * 1e12;
  if (!(rate > 0)) return std::nullopt;
  return 4 * call.batch * call.tokens * call.tokens * call.heads * call.head_dim / rate;
}

// A scenario of SGLang's CI: what it takes end to end, and its stages, added up, as the same file has them.
struct Scenario {
  double whole = 0, stages = 0;
  // By more than SGLang's CI itself lets a run be slower (tolerances.pr_test.e2e of perf_baselines).
  bool contradicts() const { return whole > 0 && stages > 1.25 * whole; }
};
// "scenarios.NAME" of "scenarios.NAME.stages_ms.DenoisingStage", and its source; empty: of none.
std::string scenario_of(const PublishedGeneration& row) {
  if (!row.where.starts_with("scenarios.")) return "";
  const std::size_t end = std::min(row.where.find(".stages_ms."), row.where.find(".expected_"));
  return row.source + ' ' + row.where.substr(0, end);
}
std::map<std::string, Scenario> scenarios(const std::vector<PublishedGeneration>& rows) {
  std::map<std::string, Scenario> out;
  for (const PublishedGeneration& row : rows) {
    if (!row.seconds) continue;
    Scenario& scenario = out[scenario_of(row)];
    if (row.timed.starts_with("end to end")) scenario.whole = *row.seconds;
    if (row.where.find(".stages_ms.") != std::string::npos) scenario.stages += *row.seconds;
  }
  out.erase("");
  return out;
}

void set(proto::MeasuredFigure& figure, double measured, double predicted) {
  figure.set_measured(measured);
  figure.set_predicted(predicted);
}

// `timed`: whether its seconds are asked, too, not its memory alone.
void fill(const PublishedGeneration& row, bool timed, proto::ValidatedRow& out) {
  const TimedPart part = timed_part(row);
  out.set_load_kind(std::string(to_string(part)));
  const Predicted predicted = predict(row, part);
  out.set_model(predicted.model);
  out.set_hardware(hardware_of(row));
  out.set_backend(predicted.backend);
  out.set_command(predicted.command);
  out.set_calibration(predicted.uncalibrated.empty()
                          ? "calibrated"
                          : fmt::format("{}", fmt::join(predicted.uncalibrated, "; ")));
  if (const std::optional<double> seconds = measured_seconds(row, part); seconds && timed)
    set(*out.mutable_seconds(), *seconds, predicted.seconds);
  // What error bands rest on: the engine that is simulated, asked as it was run.
  if (out.has_seconds() && predicted.traits && is_sglang(row) && row.solid)
    *out.mutable_traits() = *predicted.traits;
  if (row.peak_gib && predicted.peak_gib && is_sglang(row))
    set(*out.mutable_peak_memory_gib(), *row.peak_gib, *predicted.peak_gib);
  if (!timed || !row.speedup || *row.speedup == 1) return;  // 1: the baseline itself
  const std::optional<PublishedGeneration> baseline = baseline_of(row);
  if (baseline)
    set(*out.mutable_speedup(), *row.speedup, predict(*baseline, part).seconds / predicted.seconds);
  if (!out.has_seconds() && !baseline)
    throw_user_error("its speed-up is over {}, which is no setting of the row", row.baseline);
}

}  // namespace

void predict_published_figures(const std::filesystem::path& path, proto::Validation& validation) {
  scheduler::TraceInput input = open_input(path);
  const std::vector<PublishedGeneration> rows = read_published_generations(input);
  const std::map<std::string, Scenario> all = scenarios(rows);
  for (const PublishedGeneration& row : rows) {
    const std::string load =
        fmt::format("{} {}{}{}", row.model, row.resolution, row.frames.empty() ? "" : " x ", row.frames);
    const auto refuse = [&](const std::string& reason) {
      proto::NotAsked& refused = *validation.add_not_asked();
      refused.set_id(row.id);
      refused.set_load(load);
      refused.set_file(row.file);
      refused.set_reason(reason);
    };
    const auto scenario = all.find(scenario_of(row));
    const bool timed = scenario == all.end() || !scenario->second.contradicts();
    proto::ValidatedRow out;
    try {
      fill(row, timed, out);
      if (!timed) refuse("its scenario contradicts itself: the stages take longer than all of it");
      if (!timed && !out.has_peak_memory_gib()) continue;
    } catch (const UserError& error) {
      refuse(error.what());
      continue;
    }
    out.set_id(row.id);
    out.set_load(load);
    out.set_tp(row.num_gpus);
    out.set_settings(row.parallel);
    out.set_file(row.file);
    out.set_source(row.source);
    out.set_solid(row.solid);
    *validation.add_rows() = std::move(out);
  }
}

}  // namespace tpsim::launch
