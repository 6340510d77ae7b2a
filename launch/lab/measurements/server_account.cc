#include "launch/lab/measurements/server_account.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "proto/base/error.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::json;
using scheduler::Place;

// Fields of SGLang's server arguments that are flags of the same name, and the value that leaves each as it
// is (empty: none). A field that the server resolved on its own may be said again: the flag then asks for
// what it has.
constexpr std::array<std::pair<std::string_view, std::string_view>, 27> kValues = {{
    {"page_size", "1"},
    {"quantization", ""},
    {"kv_cache_dtype", "auto"},
    {"schedule_policy", "fcfs"},
    {"radix_eviction_policy", "lru"},
    {"ep_size", "1"},
    {"dp_size", "1"},
    {"pp_size", "1"},
    {"moe_a2a_backend", "none"},
    {"deepep_mode", "auto"},
    {"load_format", "auto"},
    {"context_length", ""},
    {"max_total_tokens", ""},
    {"chunked_prefill_size", ""},
    {"speculative_algorithm", ""},
    {"speculative_draft_model_path", ""},
    {"speculative_num_steps", ""},
    {"speculative_eagle_topk", ""},
    {"speculative_num_draft_tokens", ""},
    {"speculative_attention_mode", "prefill"},
    {"hicache_ratio", "2.0"},
    {"hicache_size", "0"},
    {"hicache_write_policy", "write_through"},
    {"hicache_io_backend", "kernel"},
    {"hicache_mem_layout", ""},
    {"hicache_storage_backend", ""},
    {"hicache_storage_prefetch_policy", "timeout"},
}};
constexpr std::array<std::string_view, 11> kSwitches = {
    "enable_mixed_chunk",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "disable_cuda_graph",
    "disable_piecewise_cuda_graph",
    "enable_dp_attention",
    "enable_dp_lm_head",
    "disable_shared_experts_fusion",
    "disable_chunked_prefix_cache",
    "flashinfer_mla_disable_ragged",
    "enable_hierarchical_cache",
};

std::string flag_of(std::string_view field) {
  std::string flag = "--" + std::string(field);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// "" where the field is absent or null.
std::string text_of(const Json& json, std::string_view field, const Place& place) {
  const auto found = json.find(std::string(field));
  if (found == json.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number()) return found->dump();
  place.fail("{} is neither a text nor a number", in_quotes(field));
}

bool truth_of(const Json& json, std::string_view field, const Place& place) {
  const auto found = json.find(std::string(field));
  if (found == json.end() || found->is_null()) return false;
  if (!found->is_boolean()) place.fail("{} is neither true nor false", in_quotes(field));
  return found->get<bool>();
}

std::optional<std::uint64_t> count_of(const Json& json, std::string_view field, const Place& place) {
  const auto found = json.find(std::string(field));
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_unsigned()) place.fail("{} is not a whole number from 0 up", in_quotes(field));
  return found->get<std::uint64_t>();
}

// The numbers of "0.5.6.post2"; empty where there are none.
std::vector<std::uint64_t> numbers_of(std::string_view version) {
  std::vector<std::uint64_t> numbers;
  while (!version.empty()) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), number);
    if (error != std::errc()) break;
    numbers.push_back(number);
    version.remove_prefix(static_cast<std::size_t>(end - version.data()));
    if (version.empty() || version.front() != '.') break;
    version.remove_prefix(1);
  }
  return numbers;
}

// Where the value that begins at `at` ends: at the comma or bracket after it, none of those within quotes or
// brackets of its own.
std::size_t end_of_value(std::string_view text, std::size_t at, const scheduler::Place& place) {
  int depth = 0;
  char quote = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == '\\') ++at;
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth;
    } else if (depth > 0 && (c == ']' || c == '}' || c == ')')) {
      --depth;
    } else if (depth == 0 && (c == ',' || c == ')')) {
      return at;
    }
  }
  place.fail("server_args has no end; the whole line of the log is needed");
}

// Null for None, and for what JSON has nothing of.
Json value_of(std::string_view text) {
  if (text == "True") return true;
  if (text == "False") return false;
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front()) {
    std::string plain;
    for (std::size_t i = 1; i + 1 < text.size(); ++i) {
      if (text[i] == '\\' && i + 2 < text.size()) ++i;
      plain += text[i];
    }
    return plain;
  }
  Json number = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : Json();
}

}  // namespace

Json read_server_args(std::string_view text, const scheduler::Place& place) {
  Json out = Json::object();
  for (std::size_t at = 0; at < text.size() && text[at] != ')';) {
    const std::size_t equals = text.find('=', at);
    if (equals == std::string_view::npos)
      place.fail("server_args is cut; the whole line of the log is needed");
    const std::size_t end = end_of_value(text, equals + 1, place);
    out[std::string(text.substr(at, equals - at))] = value_of(text.substr(equals + 1, end - equals - 1));
    at = end;
    while (at < text.size() && (text[at] == ',' || text[at] == ' ')) ++at;
  }
  return out;
}

ServerAccount read_server_account(const Json& json, const Place& place) {
  if (!json.is_object()) place.fail("the line is not a JSON object; one for each server is needed");
  ServerAccount out;
  out.version = text_of(json, "version", place);
  out.model_path = text_of(json, "model_path", place);
  out.hardware = text_of(json, "hardware", place);
  out.pool_tokens = count_of(json, "max_total_num_tokens", place);
  constexpr std::uint64_t kMostGpus = 1024;
  const std::uint64_t tp_size = count_of(json, "tp_size", place).value_or(1);
  if (tp_size < 1 || tp_size > kMostGpus)
    place.fail("\"tp_size\" is {}; a whole number from 1 to {} is needed", tp_size, kMostGpus);
  out.tp_size = static_cast<std::uint32_t>(tp_size);
  const std::string both = text_of(json, "attention_backend", place);
  out.prefill_backend = text_of(json, "prefill_attention_backend", place);
  out.decode_backend = text_of(json, "decode_attention_backend", place);
  if (out.prefill_backend.empty()) out.prefill_backend = both;
  if (out.decode_backend.empty()) out.decode_backend = both;
  const std::string algorithm = text_of(json, "speculative_algorithm", place);
  for (const auto& [field, as_it_is] : kValues) {
    std::string value = text_of(json, field, place);
    if (value.empty() || value == as_it_is) continue;
    // The server tells what it has made of its flag: a data-parallel rank's share (server_args.py,
    // _handle_data_parallelism).
    if (field == "chunked_prefill_size" && value.front() != '-' &&
        truth_of(json, "enable_dp_attention", place)) {
      const std::uint64_t ranks = count_of(json, "dp_size", place).value_or(1);
      value = std::to_string(count_of(json, field, place).value_or(0) * ranks);
    }
    if (field.starts_with("speculative_") && algorithm.empty()) continue;
    if (field.starts_with("hicache_") && !truth_of(json, "enable_hierarchical_cache", place)) continue;
    // The server fills them in, too, where there is no draft model.
    if (algorithm == "NGRAM" && (field == "speculative_eagle_topk" || field == "speculative_num_steps"))
      continue;
    out.flags.push_back(flag_of(field));
    out.flags.push_back(value);
  }
  for (const std::string_view field : kSwitches)
    if (truth_of(json, field, place)) out.flags.push_back(flag_of(field));
  return out;
}

ServerAccount read_account_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw_user_error("{}: no such file; it is the server's own account, which the requests need",
                     path.string());
  scheduler::TraceInput input = open_input(path);
  std::string text;
  std::string_view line;
  while (input.next_line(line)) text.append(line).append("\n");
  const Place place{input.name(), 1};
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) place.fail("the file is not JSON; the answer of /get_server_info is needed");
  return read_server_account(json, place);
}

std::map<std::string, ServerAccount> read_servers(scheduler::TraceInput& input) {
  std::map<std::string, ServerAccount> servers;
  std::string_view line;
  while (input.next_filled_line(line)) {
    const Place place = input.place();
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) place.fail("the line is not JSON; one object for each server is needed");
    ServerAccount account = read_server_account(json, place);
    const std::string name = text_of(json, "server", place);
    if (name.empty()) place.fail("\"server\" is missing; the name that the requests have is needed");
    if (!servers.emplace(name, std::move(account)).second)
      place.fail("the server {} comes twice; one line for each is needed", in_quotes(name));
  }
  return servers;
}

std::map<std::string, ServerAccount> read_servers_beside(const MeasurementFile& file) {
  const std::filesystem::path path = file.folder() / "servers.jsonl";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  scheduler::TraceInput input = open_input(path);
  return read_servers(input);
}

const ServerAccount& account_of(const std::map<std::string, ServerAccount>& servers, const std::string& name,
                                const Place& place) {
  const auto found = servers.find(name);
  if (found == servers.end())
    place.fail("the server {} has no line in servers.jsonl; its account is needed", in_quotes(name));
  return found->second;
}

void add_account(const ServerAccount& account, const MeasurementFile& file, MeasuredLoad& load) {
  load.model = std::filesystem::path(account.model_path).filename().string();
  load.backend = account.backend();
  load.hardware = account.hardware.empty() ? file.options.hardware : account.hardware;
  load.tp = account.tp_size;
  load.pool_tokens = account.pool_tokens;
  std::vector<std::string> more = account.flags;
  localize_draft_model(more, file);
  load.settings = fmt::format("{}", fmt::join(more, " "));
  add_server({.model_path = file.model_path(account.model_path),
              .version = account.version,
              .prefill_backend = account.prefill_backend,
              .decode_backend = account.decode_backend},
             load);
  add_flags(load.flags, more);
}

void add_server(const ServerStart& start, MeasuredLoad& load) {
  load.flags = {"--model-path", start.model_path, "--hardware",
                load.hardware,  "--tp-size",      std::to_string(load.tp)};
  const auto add = [&load](const char* name, const std::string& value) {
    if (!value.empty()) add_flags(load.flags, {name, value});
  };
  add("--sglang-version", nearest_release(start.version));
  add("--load-format", start.load_format);
  if (start.prefill_backend == start.decode_backend) {
    add("--attention-backend", start.prefill_backend);
  } else {
    add("--prefill-attention-backend", start.prefill_backend);
    add("--decode-attention-backend", start.decode_backend);
  }
}

std::vector<std::string> words_of_flags(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

bool has_flag(const std::vector<std::string>& flags, std::string_view name) {
  return std::any_of(flags.begin(), flags.end(), [name](const std::string& flag) {
    return flag == name || (flag.size() > name.size() && flag.starts_with(name) && flag[name.size()] == '=');
  });
}

void add_flag(std::vector<std::string>& flags, const std::string& name, const std::string& value) {
  if (has_flag(flags, name)) return;
  flags.push_back(name);
  if (!value.empty()) flags.push_back(value);
}

void add_flags(std::vector<std::string>& flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
}

std::string nearest_release(const std::string& version) {
  const std::vector<std::uint64_t> numbers = numbers_of(version);
  if (numbers.empty()) return "";
  std::string nearest;
  for (const auto& [name, rules] : scheduler::sglang_releases()) {
    if (nearest.empty() || numbers_of(name) <= numbers) nearest = name;
  }
  return nearest;
}

bool is_older(const std::string& version, const std::string& than) {
  return numbers_of(version) < numbers_of(than);
}

void localize_draft_model(std::vector<std::string>& flags, const MeasurementFile& file) {
  for (std::size_t i = 0; i + 1 < flags.size(); ++i)
    if (flags[i] == "--speculative-draft-model-path") flags[i + 1] = file.model_path(flags[i + 1]);
}

}  // namespace tpsim::launch
