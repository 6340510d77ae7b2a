// router_requests.csv: a row a request through SGLang's router, with the server that it was sent to; in the
// same folder servers.jsonl has an account of each. Policy "direct": there was no router.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measured_conversations.h"
#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "proto/base/text.h"
#include "scheduler/workload/trace_reader.h"

namespace tpsim::launch {
namespace {

struct RoutedRows {
  std::uint64_t line = 0;
  std::string policy, load;
  std::set<std::string> workers;
  std::vector<MeasuredTurn> turns;
};

// In the order in which loads begin.
std::vector<RoutedRows> read_routed(scheduler::TraceInput& input) {
  CsvRows cells(
      input,
      "policy load worker request conversation turn sent_s first_s last_s input_tokens output_tokens "
      "cached_tokens",
      "");
  std::vector<RoutedRows> loads;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  while (cells.next()) {
    constexpr std::uint32_t kMost{scheduler::kMaxRequestTokens};
    MeasuredTurn turn;
    turn.request = read_request(cells);
    if (!cells.text("conversation").empty()) {
      turn.conversation = cells.small_count("conversation", 0, kMost);
      turn.turn = cells.small_count("turn", 0, kMost);
    }
    const auto [entry, is_new] =
        known.emplace(std::pair(cells.text("policy"), cells.text("load")), loads.size());
    if (is_new) loads.push_back({cells.place().line, entry->first.first, entry->first.second, {}, {}});
    RoutedRows& rows = loads[entry->second];
    rows.workers.insert(cells.text("worker"));
    rows.turns.push_back(turn);
  }
  return loads;
}

// What the servers that were up have in common; the router had all of the file's workers before it, whether
// it sent them something or not.
MeasuredLoad load_of(const RoutedRows& rows, const std::set<std::string>& workers,
                     const std::map<std::string, ServerAccount>& servers, const MeasurementFile& file,
                     const scheduler::Place& place) {
  MeasuredLoad load;
  load.file = fmt::format("{}:{}", place.name, rows.line);
  load.load = rows.load;
  add_account(account_of(servers, *rows.workers.begin(), place), file, load);
  std::vector<MeasuredRequest> requests;
  for (const MeasuredTurn& turn : rows.turns) requests.push_back(turn.request);
  load.measured = figures_of(requests);
  load.cached_tokens = cached_of(requests);
  const std::string kind = load_kind(rows.load);
  if (kind == "conv" || kind == "convp") {
    load.load_kind = kind;
    // conv:N:FIRST:TURNS:ADDED:OUTPUT:CONCURRENCY is a closed loop, people of convp think.
    load.workload = replay_turns(rows.turns, /*timed=*/kind == "convp", load);
    add_flags(load.flags, {"--front-end", "ids", "--trace", load.workload->name});
    if (kind == "conv")
      add_flags(load.flags,
                {"--request-rate", "inf", "--max-concurrency", split_list(rows.load, ':').back()});
  } else {
    offer_requests(requests, file, place, load);
  }
  if (rows.policy != "direct") {
    load.pool_tokens.reset();  // of several pools none is what is compared
    add_flags(load.flags, {"--dp-size", std::to_string(workers.size()), "--router-policy", rows.policy});
  }
  return load;
}

}  // namespace

std::vector<MeasuredLoad> read_router_requests_file(scheduler::TraceInput& input,
                                                    const MeasurementFile& file) {
  const std::vector<RoutedRows> all = read_routed(input);
  const std::map<std::string, ServerAccount> servers = read_servers_beside(file);
  std::set<std::string> workers;
  for (const RoutedRows& rows : all) workers.insert(rows.workers.begin(), rows.workers.end());
  std::vector<MeasuredLoad> loads;
  for (const RoutedRows& rows : all) {
    loads.push_back(load_of(rows, workers, servers, file, {input.name(), rows.line}));
    loads.back().server = rows.policy;
    loads.back().settings = rows.policy;
  }
  expect_compiles(loads);
  return loads;
}

}  // namespace tpsim::launch
