// hicache_requests.csv: a row a request of a measured server with a hierarchical cache, with what of its
// prompt came from where. servers.jsonl in the same folder describes the servers; a run with a server is a
// `tag`.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measured_conversations.h"
#include "launch/lab/measurements/measured_requests.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

struct TaggedLoad {
  std::uint64_t line = 0;
  std::string server, tag, load;
  std::vector<MeasuredTurn> turns;
  CachedTokens cached;
};

std::vector<TaggedLoad> read_tagged(scheduler::TraceInput& input) {
  CsvRows cells(input,
                "server tag load request conversation turn sent_s first_s last_s input_tokens output_tokens "
                "cached_tokens cached_device cached_host cached_storage");
  std::vector<TaggedLoad> loads;
  std::map<std::string, std::size_t> known;
  constexpr std::uint32_t kMost{scheduler::kMaxRequestTokens};
  while (cells.next()) {
    MeasuredTurn turn;
    turn.request = read_request(cells);
    turn.conversation = cells.small_count("conversation", 0, kMost);
    turn.turn = cells.small_count("turn", 0, kMost);
    const std::string tag = cells.text("tag");
    const auto [entry, is_new] = known.emplace(tag, loads.size());
    if (is_new) {
      TaggedLoad& rows = loads.emplace_back();
      rows.line = cells.place().line;
      rows.tag = tag;
      rows.server = cells.text("server");
      rows.load = cells.text("load");
      if (rows.server.empty() || rows.load.empty() || tag.empty())
        cells.place().fail("server, tag and load must have a name");
    }
    TaggedLoad& rows = loads[entry->second];
    const auto count = [&cells](std::string_view column) -> std::uint64_t {
      return cells.text(column).empty() ? 0 : cells.count(column, 0, kMost);
    };
    rows.cached.device += count("cached_device");
    rows.cached.host += count("cached_host");
    rows.cached.storage += count("cached_storage");
    rows.turns.push_back(turn);
  }
  return loads;
}

// conv:N:FIRST:TURNS:ADDED:OUTPUT:CONCURRENCY, a closed loop: N conversations take turns.
void offer_conversations(const TaggedLoad& rows, MeasuredLoad& load) {
  load.load_kind = load_kind(rows.load);
  const std::vector<std::string> words = split_list(rows.load, ':');
  if (load.load_kind != "conv" || words.size() != 7) {
    load.refusal =
        fmt::format("load is {}; conv:N:FIRST:TURNS:ADDED:OUTPUT:CONCURRENCY is needed", rows.load);
    return;
  }
  load.workload = replay_turns(rows.turns, /*timed=*/false, load);
  add_flags(load.flags, {"--front-end", "ids", "--trace", load.workload->name, "--request-rate", "inf",
                         "--max-concurrency", words.back()});
}

}  // namespace

std::vector<MeasuredLoad> read_hicache_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  std::vector<TaggedLoad> all = read_tagged(input);
  const std::map<std::string, ServerAccount> servers = read_servers_beside(file);
  std::vector<MeasuredLoad> loads;
  for (TaggedLoad& rows : all) {
    MeasuredLoad& load = loads.emplace_back();
    load.file = fmt::format("{}:{}", input.name(), rows.line);
    load.server = fmt::format("{}/{}", rows.server, rows.tag);
    load.load = rows.load;
    const auto account = servers.find(rows.server);
    if (account == servers.end()) {
      load.refusal = fmt::format("servers.jsonl beside it has no server {}", rows.server);
      continue;
    }
    add_account(account->second, file, load);
    std::vector<MeasuredRequest> requests;
    for (const MeasuredTurn& turn : rows.turns) requests.push_back(turn.request);
    load.measured = figures_of(requests);
    load.cached = rows.cached;
    load.cached_tokens = rows.cached.device + rows.cached.host + rows.cached.storage;
    offer_conversations(rows, load);
    // Servers had served other loads before, and had compiled what they met.
    add_flags(load.flags, {"--served-before", "warmup,other:"});
    if (rows.cached.storage == 0) continue;
    load.stored_tokens = rows.turns.front().request.input_tokens;
    for (const MeasuredTurn& turn : rows.turns) load.stored_prompts += turn.turn == 0 ? 1 : 0;
  }
  return loads;
}

}  // namespace tpsim::launch
