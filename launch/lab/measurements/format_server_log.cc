// The log of a server alone, as it printed it: its arguments ("server_args=ServerArgs(…)") tell model and
// flags, its batches the requests (logged_requests.h). A load is what lies between two flushes of the cache.
#include <cmath>
#include <utility>

#include "launch/lab/measurements/logged_requests.h"
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

}  // namespace

bool is_server_log(std::string_view first_line) {
  // "[2026-11-21 17:31:44] …", "[2026-11-21 17:31:44 TP0] …"
  return first_line.find("server_args=ServerArgs(") != std::string_view::npos ||
         (first_line.starts_with("[2") && first_line.find(']') != std::string_view::npos &&
          first_line.find('-') == 5);
}

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
