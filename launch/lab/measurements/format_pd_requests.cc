// pd_requests.csv: a row a request that one server prefilled and another decoded; servers.jsonl in the same
// folder has an account of each.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {
namespace {

struct PairRows {
  std::uint64_t line = 0;
  std::string tag, load, prefill, decode;
  std::vector<MeasuredRequest> requests;
};

// In the order in which loads begin.
std::vector<PairRows> read_pairs(scheduler::TraceInput& input) {
  CsvRows cells(
      input,
      "tag load request prefill_server decode_server sent_s first_s last_s input_tokens output_tokens "
      "cached_tokens",
      "");
  std::vector<PairRows> loads;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  while (cells.next()) {
    const MeasuredRequest request = read_request(cells);
    const auto [entry, is_new] =
        known.emplace(std::pair(cells.text("tag"), cells.text("load")), loads.size());
    if (is_new)
      loads.push_back({cells.place().line,
                       entry->first.first,
                       entry->first.second,
                       cells.text("prefill_server"),
                       cells.text("decode_server"),
                       {}});
    loads[entry->second].requests.push_back(request);
  }
  return loads;
}

}  // namespace

std::vector<MeasuredLoad> read_pd_requests_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  std::vector<PairRows> all = read_pairs(input);
  const std::map<std::string, ServerAccount> servers = read_servers_beside(file);
  std::vector<MeasuredLoad> loads;
  for (PairRows& rows : all) {
    const scheduler::Place place{input.name(), rows.line};
    const ServerAccount& prefill = account_of(servers, rows.prefill, place);
    const ServerAccount& decode = account_of(servers, rows.decode, place);
    MeasuredLoad& load = loads.emplace_back();
    load.file = fmt::format("{}:{}", input.name(), rows.line);
    load.load = rows.load;
    add_account(prefill, file, load);
    load.pool_tokens.reset();  // of two pools neither is what is compared
    std::vector<std::string> of_decode = decode.flags;
    add_flags(of_decode, {"--tp-size", std::to_string(decode.tp_size), "--prefill-attention-backend",
                          decode.prefill_backend, "--decode-attention-backend", decode.decode_backend});
    add_flags(load.flags,
              {"--pd-disaggregation", fmt::format("--decode-args={}", fmt::join(of_decode, " "))});
    load.backend = prefill.prefill_backend + "+" + decode.decode_backend;
    load.settings = fmt::format("{}+{}", rows.prefill, rows.decode);
    if (rows.tag.starts_with("rt-")) add_flags(load.flags, {"--router-policy", "cache_aware"});
    load.measured = figures_of(rows.requests);
    load.cached_tokens = cached_of(rows.requests);
    offer_requests(rows.requests, file, place, load);
    load.server = rows.prefill + "+" + rows.decode;
  }
  expect_compiles(loads);
  for (std::size_t i = 0; i < loads.size(); ++i) loads[i].server = all[i].tag;
  return loads;
}

}  // namespace tpsim::launch
