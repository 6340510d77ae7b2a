// The log of a server alone, as it printed it: its arguments ("server_args=ServerArgs(…)") tell model and
// flags, its batches the requests. A load is what lies between two flushes of the cache.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <utility>

#include "launch/lab/measurements/measurement_formats.h"
#include "launch/lab/measurements/server_account.h"
#include "launch/lab/measurements/server_batches.h"

namespace tpsim::launch {
namespace {

constexpr std::size_t kFewBatches = 8;  // a warm-up, whose steps tell nothing
constexpr double kMostCached = 0.02;    // share of prompt tokens that are found by chance

std::uint64_t number_of(const nlohmann::json& server_args, const char* name) {
  const auto found = server_args.find(name);
  return found != server_args.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

struct LoggedRequests {
  scheduler::Workload workload;  // each sent when its first prefill was logged, prompts unrelated
  std::uint64_t prompt_tokens = 0, cached_tokens = 0;
};

constexpr std::uint32_t kMostRequests = 1 << 20;      // of a batch
constexpr std::uint64_t kLongestPrompt = 1ULL << 30;  // of a prompt

struct Logged {
  double arrival = 0;
  std::uint64_t prompt = 0;
  double answer = 1;  // the prefill brings the first
};

// Requests that the batches could have come from. A prefill batch's tokens are shared out evenly among its
// requests; one that fills `chunk` tokens (0: none does) ends with a prompt that goes on in the next. Where
// fewer requests run than before, those that have run longest have ended. Time passes with the decode
// batches, whose lines tell it.
LoggedRequests requests_of_batches(const std::vector<MeasuredBatch>& batches, std::uint64_t chunk,
                                   const std::string& name) {
  std::vector<Logged> requests;
  std::deque<std::size_t> running;
  bool goes_on = false;  // the last request's prompt
  bool decoded = false;
  double now = 0;
  LoggedRequests out;
  for (const MeasuredBatch& batch : batches) {
    if (batch.decode) {
      const double kept = std::max(1.0, batch.accept_len);
      // The first line's time began before the load.
      if (decoded && batch.tokens_per_second > 0) now += batch.running * kept / batch.tokens_per_second;
      decoded = true;
      while (running.size() > batch.running) running.pop_front();
      for (const std::size_t request : running) requests[request].answer += kept;
      continue;
    }
    const std::uint32_t sequences = std::min(batch.new_seqs, kMostRequests);
    if (sequences == 0) continue;
    const std::uint64_t share = batch.new_tokens / sequences;
    out.prompt_tokens += batch.new_tokens + batch.cached_tokens;
    out.cached_tokens += batch.cached_tokens;
    for (std::uint32_t i = 0; i < sequences; ++i) {
      if (i == 0 && goes_on) {
        requests.back().prompt += share;
        continue;
      }
      requests.push_back({now, std::max<std::uint64_t>(1, share), 1});
      running.push_back(requests.size() - 1);
    }
    goes_on = chunk > 0 && batch.new_tokens >= chunk;
  }
  out.workload.name = name;
  out.workload.format = "measured";
  kvcache::TokenId next = 0;
  for (const Logged& logged : requests) {
    scheduler::WorkloadRequest request;
    request.arrival_time = logged.arrival;
    const auto tokens = static_cast<std::uint32_t>(std::min(logged.prompt, kLongestPrompt));
    request.prompt.append({next, tokens});
    next += tokens + 1;  // two prompts do not become one run
    request.max_new_tokens =
        static_cast<std::uint32_t>(std::clamp(std::round(logged.answer), 1.0, double{kLongestPrompt}));
    out.workload.requests.push_back(std::move(request));
  }
  return out;
}

}  // namespace

std::vector<MeasuredLoad> read_server_log_file(scheduler::TraceInput& input, const MeasurementFile& file) {
  LoggedServer server;
  std::vector<std::vector<MeasuredBatch>> parts = read_server_log(input, &server);
  const scheduler::Place place = input.place();
  if (server.server_args.is_null())
    throw_user_error(
        "{}: has no line with server_args=ServerArgs(…), which tells model and flags; the log of an SGLang "
        "server from its beginning is needed",
        input.name());
  if (const std::uint64_t interval = number_of(server.server_args, "decode_log_interval"); interval > 1)
    throw_user_error("{}: the server logged one in {} decode batches; start it with --decode-log-interval 1",
                     input.name(), interval);
  ServerAccount account = read_server_account(server.server_args, place);
  if (!account.pool_tokens) account.pool_tokens = server.pool_tokens;
  std::vector<MeasuredLoad> loads;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].size() < kFewBatches) continue;
    MeasuredLoad load;
    load.file = fmt::format("{}:{}", input.name(), 1);
    load.server = file.path.stem().string();
    load.load = fmt::format("log:{}", part);
    load.load_kind = "log";
    add_account(account, file, load);
    const std::string name = fmt::format("{}#{}", load.file, load.load);
    LoggedRequests requests =
        requests_of_batches(parts[part], number_of(server.server_args, "chunked_prefill_size"), name);
    add_flag(load.flags, "--trace", name);
    add_flag(load.flags, "--front-end", "none");
    if (static_cast<double>(requests.cached_tokens) >
        kMostCached * static_cast<double>(requests.prompt_tokens))
      load.refusal = fmt::format(
          "{} of the {} prompt tokens were cached, and a log does not say which prompts share what; the "
          "requests themselves are needed",
          requests.cached_tokens, requests.prompt_tokens);
    load.batches = std::move(parts[part]);
    if (load.refusal.empty()) {
      std::uint32_t longest = 1;
      for (const scheduler::WorkloadRequest& request : requests.workload.requests)
        longest = std::max(longest, request.max_new_tokens);
      add_accept_lens(longest, load);
    }
    load.workload = std::move(requests.workload);
    if (load.workload->requests.empty()) load.refusal = "the log has no prefill batch";
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace tpsim::launch
