// The raw files of a measuring client: NAME.jsonl, a line a request ({"server", "load", "i", "sent", "first",
// "last", "isl", "osl", "cached"}; or a line a load with its requests in "recs"), NAME.info.json, the
// server's answer to /get_server_info, and NAME.log, what it printed. Requests that failed have "error", or
// no first token, and are left out.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "launch/measurements/measured_requests.h"
#include "launch/measurements/measurement_formats.h"
#include "launch/measurements/server_account.h"
#include "launch/measurements/server_batches.h"
#include "scheduler/workload/byte_source.h"
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
    place.fail("\"{}\" is missing or no name; a line is a request with its server and load", key);
  return found->get<std::string>();
}

std::uint64_t count_of(const Json& json, const char* key, std::uint64_t least, const Place& place) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() < least ||
      found->get<std::uint64_t>() > scheduler::kMaxRequestTokens)
    place.fail("\"{}\" is missing or no whole number from {} to {}", key, least,
               scheduler::kMaxRequestTokens);
  return found->get<std::uint64_t>();
}

double time_of(const Json& json, const char* key, const Place& place) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number() || !std::isfinite(found->get<double>()) ||
      std::abs(found->get<double>()) > 1e12)
    place.fail("\"{}\" is missing or no time in seconds", key);
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
    if (!rows->is_array()) place.fail("\"recs\" is no list of requests");
    for (const Json& row : *rows) {
      if (!row.is_object()) place.fail("\"recs\" holds what is no request");
      if (!failed(row)) loads.back().requests.push_back(read_request(row, place));
    }
  }
  return loads;
}

std::filesystem::path beside(const std::filesystem::path& path, const std::string& end) {
  std::string stem = path.filename().string();
  for (const std::string_view known : {".gz", ".jsonl"})
    if (stem.ends_with(known)) stem.resize(stem.size() - known.size());
  return path.parent_path() / (stem + end);
}

// The parts of the log that belong to the loads, in their order: the cache is flushed before each, and maybe
// at other times, too. A part is a load's where the prompts that it prefilled have as many tokens.
std::vector<std::vector<MeasuredBatch>> batches_of(const std::vector<KitLoad>& loads,
                                                   std::vector<std::vector<MeasuredBatch>> parts) {
  std::vector<std::vector<MeasuredBatch>> out(loads.size());
  std::size_t next = 1;  // behind what came before the first flush
  for (std::size_t i = 0; i < loads.size(); ++i) {
    double wanted = 0;
    for (const MeasuredRequest& request : loads[i].requests) wanted += request.input_tokens;
    for (std::size_t part = next; part < parts.size(); ++part) {
      double tokens = 0;
      for (const MeasuredBatch& batch : parts[part])
        tokens += static_cast<double>(batch.new_tokens + batch.cached_tokens);
      if (wanted == 0 || std::abs(tokens - wanted) > 0.01 * wanted) continue;
      out[i] = std::move(parts[part]);
      next = part + 1;
      break;
    }
  }
  return out;
}

ServerAccount read_account(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw_user_error("{}: no such file; it is the server's own account, which the requests need",
                     path.string());
  const std::string name = path.string();
  scheduler::TraceInput input(scheduler::decode(scheduler::open_file(path), name), name);
  std::string text;
  std::string_view line;
  while (input.next_line(line)) text.append(line).append("\n");
  const Place place{name, 1};
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) place.fail("the file is not JSON; the answer of /get_server_info is needed");
  return read_server_account(json, place);
}

}  // namespace

bool is_kit_file(std::string_view first_line) {
  return first_line.front() == '{' && first_line.find("\"load\"") != std::string_view::npos &&
         first_line.find("\"server\"") != std::string_view::npos;
}

std::vector<MeasuredLoad> read_kit_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  const std::vector<KitLoad> all = read_lines(input);
  const ServerAccount account = read_account(beside(file.path, ".info.json"));
  std::vector<std::vector<MeasuredBatch>> logged;
  const std::filesystem::path log = beside(file.path, ".log");
  std::error_code error;
  if (std::filesystem::exists(log, error)) {
    scheduler::TraceInput lines(scheduler::decode(scheduler::open_file(log), log.string()), log.string());
    logged = batches_of(all, read_server_log(lines));
  }
  std::vector<MeasuredLoad> loads;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const KitLoad& kit = all[i];
    if (kit.requests.empty()) continue;
    MeasuredLoad load;
    load.file = fmt::format("{}:{}", input.name(), kit.line);
    load.server = kit.server;
    load.load = kit.load;
    load.model = std::filesystem::path(account.model_path).filename().string();
    load.backend = account.backend();
    load.hardware = account.hardware.empty() ? file.options.hardware : account.hardware;
    load.tp = account.tp_size;
    std::vector<std::string> more = account.flags;
    localize_draft_model(more, file);
    load.settings = fmt::format("{}", fmt::join(more, " "));
    load.flags = {"--model-path", file.model_path(account.model_path),
                  "--hardware",   load.hardware,
                  "--tp-size",    std::to_string(load.tp)};
    if (const std::string release = nearest_release(account.version); !release.empty())
      add_flag(load.flags, "--sglang-version", release);
    if (account.prefill_backend == account.decode_backend) {
      if (!account.prefill_backend.empty())
        add_flag(load.flags, "--attention-backend", account.prefill_backend);
    } else {
      add_flag(load.flags, "--prefill-attention-backend", account.prefill_backend);
      add_flag(load.flags, "--decode-attention-backend", account.decode_backend);
    }
    load.flags.insert(load.flags.end(), more.begin(), more.end());
    load.measured = figures_of(kit.requests);
    load.pool_tokens = account.pool_tokens;
    if (!logged.empty()) load.batches = std::move(logged[i]);
    if (has_flag(load.flags, "--speculative-algorithm") && !load.batches.empty()) {
      load.accept_lens = accept_lens(load.batches, longest_answer(kit.requests));
      add_flag(load.flags, "--speculative-accept-rates", "trace");
    }
    offer_requests(kit.requests, file, {input.name(), kit.line}, load);
    // Of a load that was repeated the last time counts: a new server is slower.
    const auto [entry, is_new] = known.emplace(std::pair(load.server, load.load), loads.size());
    if (is_new) {
      loads.push_back(std::move(load));
    } else {
      loads[entry->second] = std::move(load);
    }
  }
  return loads;
}

}  // namespace tpsim::launch
