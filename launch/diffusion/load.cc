#include "launch/diffusion/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/cli/flag_values.h"
#include "launch/cli/yaml_file.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "scheduler/workload/sampler.h"

namespace tpsim::launch {
namespace {

constexpr std::uint32_t kRequests = 10,
                        kMostRequests = 1'000'000;  // the first as bench_serving.py of sglang.multimodal_gen
constexpr double kLongestMs = 1e12;

void add_note(std::vector<std::string>& notes, const std::vector<std::string>& more) {
  for (const std::string& note : more) {
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  }
}

// One line of a trace over what the flags say.
SamplingAsked read_line(const std::string& where, const nlohmann::json& line, SamplingAsked asked,
                        double& timestamp) {
  using Field = std::optional<std::uint32_t> SamplingAsked::*;
  constexpr std::array<std::pair<std::string_view, Field>, 5> kFields = {
      {{"width", &SamplingAsked::width},
       {"height", &SamplingAsked::height},
       {"num_frames", &SamplingAsked::frames},
       {"num_inference_steps", &SamplingAsked::steps},
       {"num_outputs_per_prompt", &SamplingAsked::outputs}}};
  bool timed = false;
  for (const auto& [key, value] : line.items()) {
    if (key == "timestamp") {
      if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
        throw_user_error("{}: timestamp: must be seconds, 0 or more", where);
      timestamp = value;
      timed = true;
      continue;
    }
    const auto* const field = std::ranges::find(kFields, key, &std::pair<std::string_view, Field>::first);
    if (field == kFields.end())
      throw_user_error(
          "{}: {}: must be timestamp, width, height, num_frames, num_inference_steps or "
          "num_outputs_per_prompt",
          where, in_quotes(key));
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < 1 || value.get<std::uint64_t>() > 100'000)
      throw_user_error("{}: {}: must be a whole number of 1 to 100000", where, key);
    asked.*field->second = value.get<std::uint32_t>();
  }
  if (!timed) throw_user_error("{}: has no timestamp", where);
  if (line.contains("width") || line.contains("height")) {
    for (Shortcut& shortcut : asked.shortcuts) shortcut.given = false;
  }
  return asked;
}

}  // namespace

void declare_pipeline_load(FlagSet& flags, PipelineLoad& load) {
  flags.group("Load");
  flags.add_value(
      "--trace", "FILE",
      "of requests, JSON lines: timestamp (seconds), width, height, num_frames, num_inference_steps, "
      "num_outputs_per_prompt",
      text(load.trace));
  flags.add_value("--num-prompts", "N", "requests (default 10, or the trace's)",
                  count(load.num_prompts, 1, kMostRequests));
  flags.add_value("--request-rate", "RATE",
                  "requests per second, of a Poisson process (default: all at once)",
                  [&load](std::string_view flag, const std::string& value) {
                    if (value == "inf")
                      load.request_rate.reset();
                    else
                      load.request_rate = parse_real(flag, value, 0, false, 1e6, true);
                  });
  flags.add_value("--max-concurrency", "N", "requests in flight (default: any number)",
                  count(load.max_concurrency, 1, kMostRequests));
  flags.add_value("--seed", "N", "of the arrivals (default 1)", count(load.seed, 0, 4'294'967'295));
  flags.add_value("--goodput", "e2e:MS", "counts the requests that end within so many milliseconds",
                  [&load](std::string_view flag, const std::string& value) {
                    if (!value.starts_with("e2e:"))
                      throw_user_error("{} {}: must be e2e:MILLISECONDS, for example e2e:60000", flag, value);
                    load.goodput_ms = parse_real(flag, value.substr(4), 0, false, kLongestMs, true);
                  });
}

std::vector<QueuedRequest> make_load(const PipelineLoad& load, const SamplingAsked& sampling,
                                     const rank::PipelineConfig& config, std::uint32_t num_gpus,
                                     std::vector<std::string>& notes) {
  std::vector<QueuedRequest> requests;
  std::vector<std::string> own;
  if (load.trace.empty()) {
    requests.assign(load.num_prompts.value_or(kRequests),
                    {.arrival = 0, .shape = resolve_request(sampling, config, num_gpus, own)});
    add_note(notes, own);
  } else {
    std::istringstream text(read_text("--trace", load.trace));
    std::string line;
    for (std::size_t number = 1; std::getline(text, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (load.num_prompts && requests.size() == *load.num_prompts) break;
      const std::string where = fmt::format("{}:{}", load.trace, number);
      const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object()) throw_user_error("{}: must be a JSON object", where);
      QueuedRequest request;
      const SamplingAsked asked = read_line(where, json, sampling, request.arrival);
      own.clear();
      try {
        request.shape = resolve_request(asked, config, num_gpus, own);
      } catch (const UserError& error) {
        throw_user_error("{}: {}", where, error.what());
      }
      add_note(notes, own);
      requests.push_back(std::move(request));
      if (requests.size() > kMostRequests)
        throw_user_error("--trace {}: has more than {} requests", load.trace, kMostRequests);
    }
    if (requests.empty()) throw_user_error("--trace {}: has no request", load.trace);
    std::ranges::stable_sort(requests, {}, &QueuedRequest::arrival);
  }
  if (load.request_rate) {  // the first waits, too, as in SGLang's benchmark
    scheduler::Sampler sampler(load.seed);
    double at = 0;
    for (QueuedRequest& request : requests) {
      at += sampler.exponential(1 / *load.request_rate);
      request.arrival = at;
    }
  }
  return requests;
}

}  // namespace tpsim::launch
