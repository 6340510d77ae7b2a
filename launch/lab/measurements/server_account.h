// What a server says of itself (SGLang's /get_server_info, or the part of it in servers.jsonl) as the flags
// of a load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"

namespace tpsim::launch {

struct ServerAccount {
  std::string version;     // of SGLang; empty: not said
  std::string model_path;  // as the server has it
  std::string hardware;    // empty: not said
  std::uint32_t tp_size = 1;
  std::string prefill_backend, decode_backend;  // empty: not said
  std::vector<std::string> flags;               // the others that decide its speed
  std::optional<std::uint64_t> pool_tokens;

  std::string backend() const {
    return prefill_backend == decode_backend ? prefill_backend : prefill_backend + "+" + decode_backend;
  }
};

// The arguments as a server's log has them. `text`: what follows "ServerArgs(". Texts, numbers, truths and
// None become JSON's; lists and whatever else is left out. Throws UserError at `place` for a text without its
// end.
nlohmann::json read_server_args(std::string_view text, const scheduler::Place& place);

// Throws UserError at `place` for a field of the wrong kind.
ServerAccount read_server_account(const nlohmann::json& json, const scheduler::Place& place);
// A file with the answer of /get_server_info. Throws UserError.
ServerAccount read_account_file(const std::filesystem::path& path);
// By the name in "server", one JSON object a line.
std::map<std::string, ServerAccount> read_servers(scheduler::TraceInput& input);

// The servers.jsonl in the folder of `file`; nothing where it is not there.
std::map<std::string, ServerAccount> read_servers_beside(const MeasurementFile& file);

// That of server `name`. Throws UserError at `place` where it has no line.
const ServerAccount& account_of(const std::map<std::string, ServerAccount>& servers, const std::string& name,
                                const scheduler::Place& place);

// Sets what `load` is grouped by, its flags and its pool.
void add_account(const ServerAccount& account, const MeasurementFile& file, MeasuredLoad& load);

// How a load's server was started; what is empty was not said.
struct ServerStart {
  std::string model_path = {}, version = {}, load_format = {}, prefill_backend = {}, decode_backend = {};
};
// Begins load.flags with it, load.hardware and load.tp.
void add_server(const ServerStart& start, MeasuredLoad& load);

// "a b  c" as words.
std::vector<std::string> words_of_flags(const std::string& text);
// Whether `flags` has the flag, by one of its names or joined to its value.
bool has_flag(const std::vector<std::string>& flags, std::string_view name);
// Appends {name, value} unless `flags` has the flag; without a value, a switch.
void add_flag(std::vector<std::string>& flags, const std::string& name, const std::string& value = "");
// Appends them as they are.
void add_flags(std::vector<std::string>& flags, const std::vector<std::string>& more);
// The release of `--sglang-version` that is nearest: the last one that is not newer, or the first; empty for
// an empty or unreadable version.
std::string nearest_release(const std::string& version);
// Whether one version of SGLang came before another; of the same numbers none did. An unreadable one did.
bool is_older(const std::string& version, const std::string& than);
// A folder of configs beside the file for the value of a flag that names a model.
void localize_draft_model(std::vector<std::string>& flags, const MeasurementFile& file);

}  // namespace tpsim::launch
