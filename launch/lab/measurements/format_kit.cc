// The raw files of a measuring client: NAME.jsonl, a line a request ({"server", "load", "i", "sent", "first",
// "last", "isl", "osl", "cached"}; or a line a load with its requests in "recs"), NAME.info.json, the
// server's answer to /get_server_info, and NAME.log, what it printed. Requests that failed have "error", or
// no first token, and are left out.
#include <cmath>
#include <nlohmann/json.hpp>
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

struct KitLoad {
  std::uint64_t line = 0;
  std::string server, load;
  std::vector<MeasuredRequest> requests;
};

std::string name_of(const Json& json, const char* key, const Place& place) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string() || found->get_ref<const std::string&>().empty())
    place.fail("\"{}\" is missing or not a name; each line is a request with its server and load", key);
  return found->get<std::string>();
}

std::uint64_t count_of(const Json& json, const char* key, std::uint64_t least, const Place& place) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() < least ||
      found->get<std::uint64_t>() > scheduler::kMaxRequestTokens)
    place.fail("\"{}\" is missing or not a whole number from {} to {}", key, least,
               scheduler::kMaxRequestTokens);
  return found->get<std::uint64_t>();
}

double time_of(const Json& json, const char* key, const Place& place) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number() || !std::isfinite(found->get<double>()) ||
      std::abs(found->get<double>()) > 1e12)
    place.fail("\"{}\" is missing or not a time in seconds", key);
  return found->get<double>();
}

bool failed(const Json& json) {
  const auto first = json.find("first");
  return json.contains("error") || first == json.end() || first->is_null();
}

MeasuredRequest read_request(const Json& json, const Place& place) {
  MeasuredRequest request;
  request.request = count_of(json, "i", 0, place);
  request.sent_s = time_of(json, "sent", place);
  request.first_token_s = time_of(json, "first", place);
  request.last_token_s = time_of(json, "last", place);
  request.input_tokens = static_cast<std::uint32_t>(count_of(json, "isl", 1, place));
  request.output_tokens = static_cast<std::uint32_t>(count_of(json, "osl", 1, place));
  if (json.contains("cached"))
    request.cached_tokens = static_cast<std::uint32_t>(count_of(json, "cached", 0, place));
  check_times(request, place);
  return request;
}

// In the order of the file, which is that of the server's log; a load that comes again is another one.
std::vector<KitLoad> read_lines(scheduler::TraceInput& input) {
  std::vector<KitLoad> loads;
  std::string_view line;
  while (input.next_filled_line(line)) {
    const Place place = input.place();
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) place.fail("the line is not a JSON object; one for each request is needed");
    const std::string server = name_of(json, "server", place), name = name_of(json, "load", place);
    const auto rows = json.find("recs");
    const bool begins =
        rows != json.end() || loads.empty() || loads.back().server != server || loads.back().load != name;
    if (begins) loads.push_back({place.line, server, name, {}});
    if (rows == json.end()) {
      if (!failed(json)) loads.back().requests.push_back(read_request(json, place));
      continue;
    }
    if (!rows->is_array()) place.fail("\"recs\" is not a list of requests");
    for (const Json& row : *rows) {
      if (!row.is_object()) place.fail("\"recs\" holds something that is not a request");
      if (!failed(row)) loads.back().requests.push_back(read_request(row, place));
    }
  }
  return loads;
}

std::vector<double> prompt_tokens(const std::vector<KitLoad>& loads) {
  std::vector<double> tokens;
  for (const KitLoad& load : loads) {
    tokens.push_back(0);
    for (const MeasuredRequest& request : load.requests) tokens.back() += request.input_tokens;
  }
  return tokens;
}

}  // namespace

std::vector<MeasuredLoad> read_kit_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  const std::vector<KitLoad> all = read_lines(input);
  const ServerAccount account = read_account_file(file.beside(".info.json"));
  std::vector<std::vector<MeasuredBatch>> logged = batches_of_log(file.beside(".log"), prompt_tokens(all));
  std::vector<MeasuredLoad> loads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const KitLoad& kit = all[i];
    if (kit.requests.empty()) continue;
    MeasuredLoad& load = loads.emplace_back();
    load.file = fmt::format("{}:{}", input.name(), kit.line);
    load.server = kit.server;
    load.load = kit.load;
    add_account(account, file, load);
    load.measured = figures_of(kit.requests);
    load.batches = std::move(logged[i]);
    add_accept_lens(longest_answer(kit.requests), load);
    offer_requests(kit.requests, file, {input.name(), kit.line}, load);
  }
  keep_last_of_each(loads);
  expect_compiles(loads);
  return loads;
}

}  // namespace tpsim::launch
