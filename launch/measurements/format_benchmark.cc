// A row a closed-loop benchmark of a server: AIConfigurator's public collection of end-to-end measurements.
// Prompts are random, of about `isl` tokens, with about `osl` generated; `concurrency` requests are in flight
// all the time. The rest is in the scripts of those who made the rows (published_benchmarks.h).
#include <algorithm>
#include <array>
#include <utility>

#include "launch/measurements/measurement_formats.h"
#include "launch/measurements/published_benchmarks.h"
#include "launch/measurements/server_account.h"
#include "scheduler/workload/csv_record.h"

namespace tpsim::launch {
namespace {

std::string hardware_of(std::string system) {
  std::replace(system.begin(), system.end(), '_', '-');
  for (const std::string_view chip : {"b200", "b300"})
    if (system == std::string(chip) + "-sxm") return std::string(chip);
  return system;
}

// NVIDIA's NVFP4 releases of the two.
std::string fp4_release(const std::string& model) {
  if (model.ends_with("DeepSeek-R1")) return "nvidia/DeepSeek-R1-FP4";
  if (model.ends_with("DeepSeek-V3")) return "nvidia/DeepSeek-V3-0324-FP4";
  return "";
}

}  // namespace

bool is_benchmark_file(std::string_view first_line) {
  return first_line.find("silicon_tpot_ms") != std::string_view::npos && first_line.front() != '{';
}

std::vector<MeasuredLoad> read_benchmark_file(scheduler::TraceInput& input, const MeasurementFile&) {
  enum {
    kId,
    kModel,
    kSystem,
    kIsl,
    kOsl,
    kConcurrency,
    kTp,
    kTtft,
    kTpot,
    kVersion,
    kPrecision,
    kPp,
    kDp,
    kMoeTp,
    kMoeEp
  };
  constexpr std::array<std::string_view, 15> kColumns = {"id",
                                                         "model_path",
                                                         "system",
                                                         "isl",
                                                         "osl",
                                                         "concurrency",
                                                         "tp_size",
                                                         "silicon_ttft_ms",
                                                         "silicon_tpot_ms",
                                                         "backend_version",
                                                         "precision",
                                                         "pp_size",
                                                         "attention_dp_size",
                                                         "moe_tp_size",
                                                         "moe_ep_size"};
  std::string_view line;
  input.next_filled_line(line);
  scheduler::CsvRecord record(line, input.place(), kColumns, kVersion);
  std::vector<MeasuredLoad> loads;
  while (input.next_filled_line(line)) {
    const scheduler::Place place = input.place();
    record.parse(line, place);
    const auto text = [&record](std::size_t column) {
      return record.has_column(column) ? std::string(record.text(column)) : std::string();
    };
    const auto gpus = [&](std::size_t column) {
      return text(column).empty() ? 1U : static_cast<std::uint32_t>(record.count(column, 1, 1U << 20));
    };
    const auto figure = [&](std::size_t column) {
      const double value = record.number(column);
      if (value <= 0) place.fail("{} is 0; a measured time is longer", kColumns[column]);
      return value;
    };
    MeasuredLoad load;
    load.file = fmt::format("{}:{}", input.name(), place.line);
    load.id = text(kId);
    if (load.id.empty() || text(kModel).empty() || text(kSystem).empty())
      place.fail("id, model_path and system must have a name");
    const std::uint64_t isl = record.count(kIsl, 1, 1U << 30), osl = record.count(kOsl, 1, 1U << 30);
    const std::uint64_t concurrency = record.count(kConcurrency, 1, 1U << 20);
    std::uint32_t tp = gpus(kTp);
    const std::uint32_t ep = gpus(kMoeEp), moe_tp = gpus(kMoeTp), dp = gpus(kDp);
    // Where experts are spread and cut at once, tp_size is the product of the two: rows that spell out their
    // setting ("…_tp4_ep4_…") have 16 there, and times of four GPUs.
    if (ep > 1 && moe_tp > 1 && tp == moe_tp * ep) tp = moe_tp;
    const std::string precision = text(kPrecision);
    load.model = text(kModel);
    load.hardware = hardware_of(text(kSystem));
    load.load_kind = "closed";
    const PublishedPattern pattern = published_pattern({.model = load.model,
                                                        .hardware = load.hardware,
                                                        .precision = precision,
                                                        .version = text(kVersion),
                                                        .isl = isl,
                                                        .osl = osl,
                                                        .concurrency = concurrency,
                                                        .tp_size = tp,
                                                        .dp_size = dp});
    const std::uint64_t prompts = concurrency * pattern.rounds;
    load.load = fmt::format("closed:{}:{}:{}:{}", isl, osl, concurrency, prompts);
    load.tp = tp;
    load.settings = fmt::format("{}{}{}", precision, ep > 1 ? fmt::format(" ep{}", ep) : "",
                                dp > 1 ? fmt::format(" dp{}", dp) : "");
    std::string model = load.model;
    if (precision == "fp4") model = fp4_release(load.model);
    if (model.empty()) load.refusal = fmt::format("{} has no release in fp4 that tpsim knows", load.model);
    if (!precision.empty() && precision != "fp4" && precision != "fp8")
      load.refusal = fmt::format("precision {} is none that tpsim knows; it knows fp8 and fp4", precision);
    load.flags = {"--model-path", model, "--hardware", load.hardware, "--tp-size", std::to_string(tp)};
    const std::string release = nearest_release(text(kVersion));
    if (!release.empty()) add_flag(load.flags, "--sglang-version", release);
    // DeepSeek's own weights are fp8 as they are.
    if (precision == "fp8" && load.model.find("DeepSeek") == std::string::npos)
      add_flag(load.flags, "--quantization", "fp8");
    if (gpus(kPp) > 1) add_flag(load.flags, "--pp-size", text(kPp));
    if (dp > 1) {
      add_flag(load.flags, "--dp-size", std::to_string(dp));
      add_flag(load.flags, "--enable-dp-attention");
    }
    if (ep > 1) add_flag(load.flags, "--ep-size", std::to_string(ep));
    load.flags.insert(load.flags.end(), pattern.server_flags.begin(), pattern.server_flags.end());
    for (const std::string& flag :
         {std::string("--dataset-name"), std::string("random"), std::string("--random-input-len"),
          std::to_string(isl), std::string("--random-output-len"), std::to_string(osl),
          std::string("--random-range-ratio"), fmt::format("{}", pattern.range_ratio),
          std::string("--max-concurrency"), std::to_string(concurrency), std::string("--num-prompts"),
          std::to_string(prompts), std::string("--front-end"), pattern.front_end})
      load.flags.push_back(flag);
    load.measured.ttft_ms = figure(kTtft);
    load.measured.tpot_ms = figure(kTpot);
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace tpsim::launch
