// What the server says of itself, as SGLang's pages have it, and of routes that it does not have.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/serve/live_statistics.h"
#include "proto/report.pb.h"

namespace tpsim::launch {

struct ServerInfo {
  LiveDescription live;
  // Names and context lengths (tokens), where requests say which of them they are for; else that of `live`.
  std::vector<std::pair<std::string, std::uint32_t>> models;
  proto::RunReport header;  // of the deployment: server_args and what was chosen
  std::string tokenizer_path, weight_version;
  std::vector<std::string> architectures;
  bool has_image_understanding = false;
  std::string sglang_release;              // simulated
  std::uint64_t max_total_num_tokens = 0;  // of one data-parallel rank
  std::uint32_t max_running_requests = 0;  // of one data-parallel rank
  std::uint32_t max_req_input_len = 0;
  std::string front_end;                 // simulated: "text", "ids" or "none"
  double client_seconds = 0;             // of it: simulated clients, for none that really runs
  std::string tokenizer, chat_template;  // their names
  bool real_tokenizer = false, real_chat_template = false;
  std::vector<std::string> notes;  // what is approximate
  std::time_t started = 0;
};

// JSON bodies: /get_model_info, /get_server_info, /get_load, /v1/loads, /v1/models and one model of it.
std::string model_info_json(const ServerInfo& info);
std::string server_info_json(const ServerInfo& info, const LiveStatistics& live);
std::string load_json(const LiveStatistics& live);
std::string loads_json(const ServerInfo& info, const LiveStatistics& live);
// Of a router before several replicas: /workers, /get_loads, /flush_cache, /readiness.
std::string workers_json(const LiveStatistics& live);
std::string router_loads_json(const LiveStatistics& live);
std::string router_flush_json(std::size_t replicas);
std::string router_readiness_json(std::size_t replicas);
std::string models_json(const ServerInfo& info);
std::optional<std::string> model_card_json(const ServerInfo& info, std::string_view name);  // none: no such

// A route of SGLang 0.5.12 that a simulation has nothing to answer with.
struct RefusedRoute {
  std::string_view path;  // as counted; of a prefix, what all of its paths begin with
  std::string_view why;   // a sentence: what is missing here and what would do
};

// The one that `path` is, or none: of no such route SGLang knows either.
std::optional<RefusedRoute> find_refused_route(std::string_view path);

}  // namespace tpsim::launch
