#include "launch/measurements/served_account.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "proto/base/error.h"
#include "scheduler/workload/byte_source.h"

namespace tpsim::launch {

ServerAccount read_account_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw_user_error("{}: no such file; it is the server's own account, which the requests need",
                     path.string());
  const std::string name = path.string();
  scheduler::TraceInput input(scheduler::decode(scheduler::open_file(path), name), name);
  std::string text;
  std::string_view line;
  while (input.next_line(line)) text.append(line).append("\n");
  const scheduler::Place place{name, 1};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) place.fail("the file is not JSON; the answer of /get_server_info is needed");
  return read_server_account(json, place);
}

void add_server_flags(const ServerAccount& account, const MeasurementFile& file, MeasuredLoad& load) {
  load.model = std::filesystem::path(account.model_path).filename().string();
  load.backend = account.backend();
  load.hardware = account.hardware.empty() ? file.options.hardware : account.hardware;
  load.tp = account.tp_size;
  load.pool_tokens = account.pool_tokens;
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
}

}  // namespace tpsim::launch
