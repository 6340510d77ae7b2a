#include "launch/lab/measurements/server_batches.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <limits>
#include <system_error>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"

namespace tpsim::launch {
namespace {

using scheduler::Place;

constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMostTokens = std::uint64_t{kMost} * 1024;  // of a pool

// The number after `key` in a line of the log; nothing where it is not there.
std::optional<double> figure(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(at + key.size());
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

double needed(std::string_view line, std::string_view key, const Place& place) {
  const std::optional<double> value = figure(line, key);
  if (!value)
    place.fail("the batch has no {}; a line of SGLang's log with its figure is needed", in_quotes(key));
  return *value;
}

std::uint32_t small(std::string_view line, std::string_view key, const Place& place) {
  const double value = needed(line, key, place);
  if (value > static_cast<double>(kMost)) place.fail("{} is {:g}; at most {} is possible", key, value, kMost);
  return static_cast<std::uint32_t>(value);
}

void read_other_line(std::string_view line, const Place& place, LoggedServer& server) {
  constexpr std::string_view kArgs = "server_args=ServerArgs(";
  if (const std::size_t at = line.find(kArgs); at != std::string_view::npos && server.server_args.is_null())
    server.server_args = read_server_args(line.substr(at + kArgs.size()), place);
  const std::optional<double> tokens = figure(line, " max_total_num_tokens=");
  if (tokens && *tokens >= 1 && *tokens < 1e15) server.pool_tokens = static_cast<std::uint64_t>(*tokens);
}

}  // namespace

std::map<std::pair<std::string, std::string>, std::vector<MeasuredBatch>> read_batches(
    scheduler::TraceInput& input) {
  std::map<std::pair<std::string, std::string>, std::vector<MeasuredBatch>> batches;
  std::string_view first;
  if (!input.next_filled_line(first)) return batches;
  input.unread_line();
  CsvRows cells(input,
                "server load mode new_seqs new_tokens cached_tokens running gen_tokens_per_s kv_tokens",
                "accept_len");
  while (cells.next()) {
    const Place place = cells.place();
    MeasuredBatch batch;
    const std::string mode = cells.text("mode");
    if (mode != "decode" && mode != "extend")
      place.fail("mode is {}; decode or extend is needed", in_quotes(mode));
    batch.decode = mode == "decode";
    batch.running = cells.small_count("running", 0, kMost);
    if (batch.decode) {
      batch.tokens_per_second = cells.number("gen_tokens_per_s");
      batch.kv_tokens = cells.text("kv_tokens").empty() ? 0 : cells.count("kv_tokens", 0, kMostTokens);
      if (!cells.text("accept_len").empty()) {
        batch.accept_len = cells.number("accept_len");
        if (batch.accept_len > 1024)
          place.fail("accept_len is {:g}; at most 1024 is possible", batch.accept_len);
      }
    } else {
      batch.new_seqs = cells.small_count("new_seqs", 0, kMost);
      batch.new_tokens = cells.count("new_tokens", 0, kMost);
      batch.cached_tokens = cells.count("cached_tokens", 0, kMostTokens);
    }
    batches[{cells.text("server"), cells.text("load")}].push_back(batch);
  }
  return batches;
}

std::vector<std::vector<MeasuredBatch>> read_server_log(scheduler::TraceInput& input, LoggedServer* server) {
  std::vector<std::vector<MeasuredBatch>> loads(1);
  std::string_view line;
  while (input.next_line(line)) {
    const Place place = input.place();
    if (line.find("Cache flushed successfully") != std::string_view::npos) {
      loads.emplace_back();
      continue;
    }
    MeasuredBatch batch;
    if (line.find("Decode batch") != std::string_view::npos) {
      batch.decode = true;
      batch.running = small(line, "#running-req: ", place);
      batch.tokens_per_second = needed(line, "gen throughput (token/s): ", place);
      // Models with several kinds of layers count "#full token".
      const double held = figure(line, "#token: ").value_or(figure(line, "#full token: ").value_or(0));
      if (held > 1e15) place.fail("#token is {:g}; no pool has as many", held);
      batch.kv_tokens = static_cast<std::uint64_t>(held);
      batch.accept_len = figure(line, "accept len: ").value_or(1);
      if (batch.accept_len > 1024)
        place.fail("accept len is {:g}; at most 1024 is possible", batch.accept_len);
    } else if (line.find("Prefill batch") != std::string_view::npos) {
      batch.running = small(line, "#running-req: ", place);
      batch.new_seqs = small(line, "#new-seq: ", place);
      batch.new_tokens = small(line, "#new-token: ", place);
      batch.cached_tokens = small(line, "#cached-token: ", place);
    } else {
      if (server != nullptr) read_other_line(line, place, *server);
      continue;
    }
    loads.back().push_back(batch);
  }
  return loads;
}

std::vector<std::vector<MeasuredBatch>> batches_of_log(const std::filesystem::path& path,
                                                       const std::vector<double>& tokens) {
  std::vector<std::vector<MeasuredBatch>> out(tokens.size());
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return out;
  scheduler::TraceInput log = open_input(path);
  std::vector<std::vector<MeasuredBatch>> parts = read_server_log(log);
  std::size_t next = 1;  // after what came before the first flush
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::size_t part = next; part < parts.size(); ++part) {
      double prefilled = 0;
      for (const MeasuredBatch& batch : parts[part])
        prefilled += static_cast<double>(batch.new_tokens + batch.cached_tokens);
      if (tokens[i] == 0 || std::abs(prefilled - tokens[i]) > 0.01 * tokens[i]) continue;
      out[i] = std::move(parts[part]);
      next = part + 1;
      break;
    }
  }
  return out;
}

void add_accept_lens(std::uint32_t longest_answer, MeasuredLoad& load) {
  const std::vector<MeasuredBatch>& batches = load.batches;
  if (batches.empty() || !has_flag(load.flags, "--speculative-algorithm")) return;
  constexpr std::size_t kMostRequests = 4096;  // that any server runs at once
  double longest = 1;
  for (const MeasuredBatch& batch : batches)
    if (batch.decode) longest = std::max(longest, batch.accept_len);
  struct Running {
    std::uint32_t steps = 0;
    double tokens = 1;
    auto operator<=>(const Running&) const = default;
  };
  std::vector<Running> running;
  struct Sum {
    double tokens = 0;
    double requests = 0;
  };
  std::map<std::uint32_t, Sum> sums;
  for (const MeasuredBatch& batch : batches) {
    if (!batch.decode) {
      running.resize(std::min<std::size_t>(running.size() + batch.new_seqs, kMostRequests));
      continue;
    }
    std::sort(running.begin(), running.end());
    running.resize(std::min<std::size_t>(running.size(), batch.running));
    for (Running& request : running) {
      if (request.tokens + longest < longest_answer) {
        Sum& sum = sums[request.steps];
        sum.tokens += batch.accept_len;
        sum.requests += 1;
      }
      ++request.steps;
      request.tokens += std::max(1.0, batch.accept_len);
    }
  }
  std::vector<std::pair<std::uint32_t, double>>& found = load.accept_lens;
  for (const auto& [step, sum] : sums) {
    const double mean = std::max(1.0, sum.tokens / sum.requests);
    if (found.empty() || std::abs(mean - found.back().second) > 0.1) found.emplace_back(step, mean);
  }
  if (found.empty()) found.emplace_back(0, 1.0);
  add_flag(load.flags, "--speculative-accept-rates", "trace");
}

}  // namespace tpsim::launch
