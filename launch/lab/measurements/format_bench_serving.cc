// What SGLang's own benchmark appends to its --output-file: a JSON line a run, with the lengths and times of
// every request where it was started with --output-details. The server is told by the line's "server_info" or
// by NAME.info.json beside the file, its batches by NAME.log.
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "launch/lab/measurements/server_batches.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::json;
using scheduler::Place;

double number_of(const Json& line, const char* key, const Place& place) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number() || !(found->get<double>() >= 0) ||
      found->get<double>() > 1e12)
    place.fail("\"{}\" is missing or not a number from 0 up; sglang.bench_serving writes one", key);
  return found->get<double>();
}

std::uint32_t tokens_of(const Json& value, const char* key, const Place& place) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > scheduler::kMaxRequestTokens)
    place.fail("\"{}\" holds something that is not a number of tokens", key);
  return std::max(1U, value.get<std::uint32_t>());
}

double seconds_of(const Json& value, const char* key, const Place& place) {
  if (!value.is_number() || !(value.get<double>() >= 0))
    place.fail("\"{}\" holds something that is not a time in seconds", key);
  return value.get<double>();
}

const Json& list_of(const Json& line, const char* key, std::size_t count, const Place& place) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_array() || found->size() != count || count == 0)
    place.fail("\"{}\" is not a list with an entry for each request, as the other lists of the line are",
               key);
  return *found;
}

// With --output-details: the requests in their order. When each was sent is not in the line; `sent_s` is 0.
std::vector<MeasuredRequest> requests_of(const Json& line, const Place& place) {
  std::vector<MeasuredRequest> requests;
  if (!line.contains("input_lens") || !line.at("input_lens").is_array()) return requests;
  const std::size_t count = line.at("input_lens").size();
  const Json& inputs = list_of(line, "input_lens", count, place);
  const Json& outputs = list_of(line, "output_lens", count, place);
  const Json& ttfts = list_of(line, "ttfts", count, place);
  const Json& itls = list_of(line, "itls", count, place);
  for (std::size_t i = 0; i < count; ++i) {
    MeasuredRequest request;
    request.request = i;
    request.input_tokens = tokens_of(inputs[i], "input_lens", place);
    request.output_tokens = tokens_of(outputs[i], "output_lens", place);
    request.last_token_s = request.first_token_s = seconds_of(ttfts[i], "ttfts", place);
    if (!itls[i].is_array()) place.fail("\"itls\" holds something that is not a list of seconds");
    for (const Json& interval : itls[i]) request.last_token_s += seconds_of(interval, "itls", place);
    if (!(request.last_token_s < 1e12)) place.fail("\"itls\" holds something that is not a time in seconds");
    requests.push_back(request);
  }
  return requests;
}

MeasuredFigures figures(const Json& line, const std::vector<MeasuredRequest>& requests, const Place& place) {
  MeasuredFigures out;
  if (requests.empty()) {
    out.ttft_ms = number_of(line, "mean_ttft_ms", place);
    out.e2e_ms = number_of(line, "mean_e2e_latency_ms", place);
  } else {
    out = figures_of(requests);
  }
  out.duration_s = number_of(line, "duration", place);
  return out;
}

// "inf" or requests a second.
std::string rate_of(const Json& line, const Place& place) {
  const auto found = line.find("request_rate");
  if (found == line.end() || found->is_null() || (found->is_string() && *found == "inf")) return "inf";
  if (!found->is_number() || !(found->get<double>() > 0))
    place.fail("\"request_rate\" is neither a number above 0 nor inf; runs of a trace's times are not known");
  return fmt::format("{}", found->get<double>());
}

void offer(const Json& line, const std::vector<MeasuredRequest>& requests, const Place& place,
           MeasuredLoad& load) {
  const auto add = [&load](const char* flag, const std::string& value) {
    add_flags(load.flags, {flag, value});
  };
  const std::string rate = rate_of(line, place);
  load.load_kind = rate == "inf" ? "closed" : "poisson";
  add("--front-end", "text");
  if (!requests.empty()) {
    load.workload = replay(requests, /*timed=*/false, load);
    add("--trace", load.workload->name);
  } else {
    const std::string dataset = line.value("dataset_name", "");
    if (dataset != "random" && dataset != "random-ids") {
      load.refusal = fmt::format(
          "the lengths of {}'s requests are not in the line; run sglang.bench_serving with --output-details",
          dataset.empty() ? "the data set" : dataset);
      return;
    }
    const auto whole = [&](const char* key) { return fmt::format("{:.0f}", number_of(line, key, place)); };
    add("--dataset-name", "random");
    add("--random-input-len", whole("random_input_len"));
    add("--random-output-len", whole("random_output_len"));
    add("--random-range-ratio", fmt::format("{}", number_of(line, "random_range_ratio", place)));
    add("--num-prompts", whole("completed"));
  }
  add("--request-rate", rate);
  const auto concurrency = line.find("max_concurrency");
  if (concurrency != line.end() && concurrency->is_number_unsigned() && *concurrency > 0)
    add("--max-concurrency", concurrency->dump());
}

}  // namespace

std::vector<MeasuredLoad> read_bench_serving_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  std::optional<ServerAccount> beside;
  std::vector<double> tokens;
  std::vector<MeasuredLoad> loads;
  std::string_view text;
  while (input.next_filled_line(text)) {
    const Place place = input.place();
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) place.fail("the line is not a JSON object; one for each run is needed");
    MeasuredLoad load;
    load.file = fmt::format("{}:{}", input.name(), place.line);
    load.server = file.path.stem().string();
    load.load = fmt::format("run:{}", place.line);
    const auto info = line.find("server_info");
    if (info != line.end() && info->is_object()) {
      add_account(read_server_account(*info, place), file, load);
    } else {
      if (!beside) beside = read_account_file(file.beside(".info.json"));
      add_account(*beside, file, load);
    }
    const std::vector<MeasuredRequest> requests = requests_of(line, place);
    load.measured = figures(line, requests, place);
    offer(line, requests, place, load);
    tokens.push_back(number_of(line, "total_input_tokens", place));
    loads.push_back(std::move(load));
  }
  std::vector<std::vector<MeasuredBatch>> parts = batches_of_log(file.beside(".log"), tokens);
  for (std::size_t i = 0; i < loads.size(); ++i) loads[i].batches = std::move(parts[i]);
  return loads;
}

}  // namespace tpsim::launch
