// requests.csv: a row a request of a measured server, which servers.jsonl in the same folder describes.
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "launch/lab/measurements/server_batches.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {
namespace {

struct LoadRows {
  std::uint64_t line = 0;
  MeasuredLoad load;  // what its rows say of it
  std::string prefill, decode, kv_cache_dtype;
  std::vector<MeasuredRequest> requests;
};

// In the order in which loads begin.
std::vector<LoadRows> read_rows(scheduler::TraceInput& input) {
  CsvRows cells(input,
                "server load model tp prefill_attention_backend decode_attention_backend request sent_s "
                "first_token_s last_token_s input_tokens output_tokens cached_tokens",
                "kv_cache_dtype other_flags");
  std::vector<LoadRows> loads;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  while (cells.next()) {
    const MeasuredRequest request = read_request(cells, "first_token_s", "last_token_s");
    const auto [entry, is_new] =
        known.emplace(std::pair(cells.text("server"), cells.text("load")), loads.size());
    if (is_new) {
      LoadRows& rows = loads.emplace_back();
      MeasuredLoad& load = rows.load;
      rows.line = cells.place().line;
      load.file = fmt::format("{}:{}", input.name(), rows.line);
      std::tie(load.server, load.load) = entry->first;
      load.model = cells.text("model");
      load.tp = cells.small_count("tp", 1, 1024);
      load.settings = cells.text("other_flags");
      rows.prefill = cells.text("prefill_attention_backend");
      rows.decode = cells.text("decode_attention_backend");
      load.backend = rows.prefill == rows.decode ? rows.prefill : rows.prefill + "+" + rows.decode;
      rows.kv_cache_dtype = cells.text("kv_cache_dtype");
      if (load.server.empty() || load.load.empty() || load.model.empty())
        cells.place().fail("server, load and model must have a name");
    }
    loads[entry->second].requests.push_back(request);
  }
  return loads;
}

// What `read` makes of the first of the files beside the measurements that is there; else nothing.
template <typename Read>
auto read_beside(const MeasurementFile& file, std::initializer_list<const char*> names, Read read) {
  for (const char* name : names) {
    const std::filesystem::path path = file.folder() / name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    scheduler::TraceInput input = open_input(path);
    return read(input);
  }
  return decltype(read(std::declval<scheduler::TraceInput&>())){};
}

// What was said on the server's command line wins over what the server says of itself.
void set_flags(const LoadRows& rows, const ServerAccount& account, const MeasurementFile& file,
               MeasuredLoad& load) {
  std::vector<std::string> given = words_of_flags(load.settings);
  localize_draft_model(given, file);
  load.hardware = account.hardware.empty() ? file.options.hardware : account.hardware;
  add_server({.model_path = file.model_path(load.model),
              .version = account.version,
              .load_format = has_flag(given, "--load-format") ? "" : "dummy",
              .prefill_backend = rows.prefill,
              .decode_backend = rows.decode},
             load);
  if (!rows.kv_cache_dtype.empty() && rows.kv_cache_dtype != "auto" && !has_flag(given, "--kv-cache-dtype"))
    add_flag(load.flags, "--kv-cache-dtype", rows.kv_cache_dtype);
  add_flags(load.flags, given);
  for (std::size_t i = 0; i < account.flags.size(); ++i) {
    const std::string& flag = account.flags[i];
    const bool valued = i + 1 < account.flags.size() && !account.flags[i + 1].starts_with("--");
    add_flag(load.flags, flag, valued ? account.flags[i + 1] : "");
    i += valued ? 1 : 0;
  }
}

}  // namespace

std::vector<MeasuredLoad> read_requests_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  std::vector<LoadRows> all = read_rows(input);
  const auto servers = read_beside(file, {"servers.jsonl"}, read_servers);
  const auto batches = read_beside(file, {"batches.csv.gz", "batches.csv"}, read_batches);
  std::vector<MeasuredLoad> loads;
  for (LoadRows& rows : all) {
    MeasuredLoad& load = rows.load;
    const auto known = servers.find(load.server);
    const ServerAccount account = known == servers.end() ? ServerAccount() : known->second;
    set_flags(rows, account, file, load);
    load.measured = figures_of(rows.requests);
    load.pool_tokens = account.pool_tokens;
    if (const auto found = batches.find({load.server, load.load}); found != batches.end()) {
      load.batches = found->second;
      add_accept_lens(longest_answer(rows.requests), load);
    }
    offer_requests(rows.requests, file, {input.name(), rows.line}, load);
    loads.push_back(std::move(load));
  }
  expect_compiles(loads);
  return loads;
}

}  // namespace tpsim::launch
