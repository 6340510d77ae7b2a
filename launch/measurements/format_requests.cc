// requests.csv: a row a request of a measured server, which servers.jsonl in the same folder describes.
#include <array>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "launch/measurements/measured_requests.h"
#include "launch/measurements/measurement_formats.h"
#include "launch/measurements/server_account.h"
#include "launch/measurements/server_batches.h"
#include "scheduler/workload/byte_source.h"
#include "scheduler/workload/csv_record.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {
namespace {

using scheduler::Place;

// What is the same in all rows of a load.
struct LoadRows {
  std::uint64_t line = 0;
  std::string server, load, model, prefill, decode, kv_cache_dtype, other_flags;
  std::uint32_t tp = 1;
  std::vector<MeasuredRequest> requests;
};

scheduler::TraceInput open(const std::filesystem::path& path) {
  return scheduler::TraceInput(scheduler::decode(scheduler::open_file(path), path.string()), path.string());
}

// In the order in which loads begin.
std::vector<LoadRows> read_rows(scheduler::TraceInput& input) {
  enum {
    kServer,
    kLoad,
    kModel,
    kTp,
    kPrefill,
    kDecode,
    kRequest,
    kSent,
    kFirst,
    kLast,
    kInput,
    kOutput,
    kCached,
    kKvDtype,
    kOtherFlags
  };
  constexpr std::array<std::string_view, 15> kColumns = {"server",
                                                         "load",
                                                         "model",
                                                         "tp",
                                                         "prefill_attention_backend",
                                                         "decode_attention_backend",
                                                         "request",
                                                         "sent_s",
                                                         "first_token_s",
                                                         "last_token_s",
                                                         "input_tokens",
                                                         "output_tokens",
                                                         "cached_tokens",
                                                         "kv_cache_dtype",
                                                         "other_flags"};
  std::string_view line;
  input.next_filled_line(line);
  scheduler::CsvRecord record(line, input.place(), kColumns, kKvDtype);
  std::vector<LoadRows> loads;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  while (input.next_filled_line(line)) {
    const Place place = input.place();
    record.parse(line, place);
    MeasuredRequest request;
    request.request = record.count(kRequest, 0, std::uint64_t{1} << 40);
    request.sent_s = record.number(kSent);
    request.first_token_s = record.number(kFirst);
    request.last_token_s = record.number(kLast);
    constexpr std::uint64_t kMost = scheduler::kMaxRequestTokens;
    request.input_tokens = static_cast<std::uint32_t>(record.count(kInput, 1, kMost));
    request.output_tokens = static_cast<std::uint32_t>(record.count(kOutput, 1, kMost));
    request.cached_tokens = static_cast<std::uint32_t>(record.count(kCached, 0, kMost));
    check_times(request, place);
    const auto optional = [&record](std::size_t column) {
      return record.has_column(column) ? std::string(record.text(column)) : std::string();
    };
    std::pair<std::string, std::string> key(record.text(kServer), record.text(kLoad));
    const auto [entry, is_new] = known.emplace(key, loads.size());
    if (is_new) {
      LoadRows& rows = loads.emplace_back();
      rows.line = place.line;
      rows.server = key.first;
      rows.load = key.second;
      rows.model = record.text(kModel);
      rows.tp = static_cast<std::uint32_t>(record.count(kTp, 1, 1024));
      rows.prefill = record.text(kPrefill);
      rows.decode = record.text(kDecode);
      rows.kv_cache_dtype = optional(kKvDtype);
      rows.other_flags = optional(kOtherFlags);
      if (rows.server.empty() || rows.load.empty() || rows.model.empty())
        place.fail("server, load and model must have a name");
    }
    loads[entry->second].requests.push_back(request);
  }
  return loads;
}

std::map<std::string, ServerAccount> servers_beside(const MeasurementFile& file) {
  const std::filesystem::path path = file.folder() / "servers.jsonl";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  scheduler::TraceInput input = open(path);
  return read_servers(input);
}

std::map<std::pair<std::string, std::string>, std::vector<MeasuredBatch>> batches_beside(
    const MeasurementFile& file) {
  for (const char* name : {"batches.csv.gz", "batches.csv"}) {
    const std::filesystem::path path = file.folder() / name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    scheduler::TraceInput input = open(path);
    return read_batches(input);
  }
  return {};
}

// What was said on the server's command line wins over what the server says of itself.
std::vector<std::string> server_flags(const LoadRows& rows, const ServerAccount* account,
                                      const MeasurementFile& file) {
  std::vector<std::string> given = words_of_flags(rows.other_flags);
  localize_draft_model(given, file);
  std::vector<std::string> flags;
  add_flag(flags, "--model-path", file.model_path(rows.model));
  add_flag(flags, "--hardware",
           account != nullptr && !account->hardware.empty() ? account->hardware : file.options.hardware);
  add_flag(flags, "--tp-size", std::to_string(rows.tp));
  if (account != nullptr && !account->version.empty())
    add_flag(flags, "--sglang-version", nearest_release(account->version));
  if (!has_flag(given, "--load-format")) add_flag(flags, "--load-format", "dummy");
  if (rows.prefill == rows.decode) {
    if (!rows.prefill.empty()) add_flag(flags, "--attention-backend", rows.prefill);
  } else {
    if (!rows.prefill.empty()) add_flag(flags, "--prefill-attention-backend", rows.prefill);
    if (!rows.decode.empty()) add_flag(flags, "--decode-attention-backend", rows.decode);
  }
  if (!rows.kv_cache_dtype.empty() && rows.kv_cache_dtype != "auto" && !has_flag(given, "--kv-cache-dtype"))
    add_flag(flags, "--kv-cache-dtype", rows.kv_cache_dtype);
  flags.insert(flags.end(), given.begin(), given.end());
  if (account == nullptr) return flags;
  for (std::size_t i = 0; i < account->flags.size(); ++i) {
    const std::string& flag = account->flags[i];
    const bool valued = i + 1 < account->flags.size() && !account->flags[i + 1].starts_with("--");
    add_flag(flags, flag, valued ? account->flags[i + 1] : "");
    i += valued ? 1 : 0;
  }
  return flags;
}

}  // namespace

bool is_requests_file(std::string_view first_line) {
  return first_line.find("sent_s") != std::string_view::npos &&
         first_line.find("first_token_s") != std::string_view::npos && first_line.front() != '{';
}

std::vector<MeasuredLoad> read_requests_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  const std::vector<LoadRows> all = read_rows(input);
  const std::map<std::string, ServerAccount> servers = servers_beside(file);
  const auto batches = batches_beside(file);
  std::vector<MeasuredLoad> loads;
  for (const LoadRows& rows : all) {
    const auto account = servers.find(rows.server);
    const ServerAccount* const known = account == servers.end() ? nullptr : &account->second;
    MeasuredLoad load;
    load.file = fmt::format("{}:{}", input.name(), rows.line);
    load.server = rows.server;
    load.load = rows.load;
    load.model = rows.model;
    load.backend = rows.prefill == rows.decode ? rows.prefill : rows.prefill + "+" + rows.decode;
    load.settings = rows.other_flags;
    load.tp = rows.tp;
    load.flags = server_flags(rows, known, file);
    load.hardware = load.flags[3];
    load.measured = figures_of(rows.requests);
    if (known != nullptr) load.pool_tokens = known->pool_tokens;
    if (const auto found = batches.find({rows.server, rows.load}); found != batches.end()) {
      load.batches = found->second;
      if (has_flag(load.flags, "--speculative-algorithm"))
        load.accept_lens = accept_lens(load.batches, longest_answer(rows.requests));
    }
    if (!load.accept_lens.empty()) add_flag(load.flags, "--speculative-accept-rates", "trace");
    offer_requests(rows.requests, file, {input.name(), rows.line}, load);
    loads.push_back(std::move(load));
  }
  expect_compiles(loads);
  return loads;
}

}  // namespace tpsim::launch
