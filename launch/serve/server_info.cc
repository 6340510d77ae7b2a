#include "launch/serve/server_info.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tpsim::launch {
namespace {

using nlohmann::ordered_json;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

// Of a run's report; a live server has no load of its own.
constexpr std::string_view kOfLoads[] = {"dataset_name",    "dataset_path", "flush_cache",  "front_end",
                                         "max_concurrency", "num_prompts",  "request_rate", "seed",
                                         "time_scale",      "session_mode", "trace",        "trace_format",
                                         "warmup_requests"};

// server_args as SGLang writes them: numbers as numbers, lists as lists.
ordered_json server_args(const ServerInfo& info) {
  ordered_json out = ordered_json::object();
  const std::map<std::string, std::string> sorted(info.header.server_args().begin(),
                                                  info.header.server_args().end());
  for (const auto& [name, text] : sorted) {
    if (std::find(std::begin(kOfLoads), std::end(kOfLoads), name) != std::end(kOfLoads)) continue;
    if (name == "cuda_graph_bs") {
      std::istringstream words(text);
      out[name] = ordered_json::array();
      for (std::uint32_t size = 0; words >> size;) out[name].push_back(size);
      continue;
    }
    const ordered_json value = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_number() || value.is_boolean())
      out[name] = value;
    else
      out[name] = text;
  }
  out["tokenizer_path"] = info.tokenizer_path;
  out["served_model_name"] = info.served_model_name;
  out["weight_version"] = info.weight_version;
  return out;
}

// GetLoadsReqOutput of managers/io_struct.py, of all data-parallel ranks together.
ordered_json core_load(const LiveStatistics& live) {
  ordered_json load;
  load["dp_rank"] = 0;
  load["num_running_reqs"] = live.num_running_reqs;
  load["num_waiting_reqs"] = live.num_queue_reqs;
  load["num_used_tokens"] = live.kv_used_tokens;
  load["num_total_tokens"] = live.kv_used_tokens + live.pending_prefill_tokens;
  load["max_total_num_tokens"] = live.description.max_total_num_tokens;
  load["token_usage"] = rounded(share(live.kv_used_tokens, live.description.max_total_num_tokens), 4);
  load["gen_throughput"] = rounded(live.gen_throughput, 2);
  load["cache_hit_rate"] = rounded(live.cache_hit_rate, 4);
  load["utilization"] = rounded(live.utilization, 4);
  load["max_running_requests"] = live.description.max_running_requests;
  return load;
}

}  // namespace

std::string model_info_json(const ServerInfo& info) {
  ordered_json out;
  out["model_path"] = info.model_path;
  out["tokenizer_path"] = info.tokenizer_path;
  out["is_generation"] = true;
  out["preferred_sampling_params"] = nullptr;
  out["weight_version"] = info.weight_version;
  out["has_image_understanding"] = info.has_image_understanding;
  out["has_audio_understanding"] = false;
  if (info.model_type.empty())
    out["model_type"] = nullptr;
  else
    out["model_type"] = info.model_type;
  if (info.architectures.empty())
    out["architectures"] = nullptr;
  else
    out["architectures"] = info.architectures;
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string server_info_json(const ServerInfo& info, const LiveStatistics& live) {
  ordered_json out = server_args(info);
  out["status"] = "ready";
  out["max_total_num_tokens"] = info.max_total_num_tokens;
  out["max_req_input_len"] = info.max_req_input_len;
  ordered_json state = server_args(info);
  state["last_gen_throughput"] = live.gen_throughput;
  state["memory_usage"] = {{"token_capacity", info.max_total_num_tokens}};
  state["effective_max_running_requests_per_dp"] = info.max_running_requests;
  if (live.spec_accept_length > 0) state["avg_spec_accept_length"] = live.spec_accept_length;
  out["internal_states"] = ordered_json::array();
  for (std::uint32_t rank = 0; rank < info.dp_size; ++rank) out["internal_states"].push_back(state);
  out["version"] = info.sglang_release;
  ordered_json simulated;
  simulated["executor"] = live.description.executor;
  simulated["speedup"] = info.speedup;
  simulated["front_end"] = info.front_end;
  simulated["client_seconds"] = info.client_seconds;
  simulated["tokenizer"] = info.tokenizer;
  simulated["real_tokenizer"] = info.real_tokenizer;
  simulated["chat_template"] = info.chat_template;
  simulated["real_chat_template"] = info.real_chat_template;
  simulated["notes"] = info.notes;
  simulated["wall_lag"] = live.wall_lag;
  simulated["max_wall_lag"] = live.max_wall_lag;
  ordered_json late;
  for (const double q : {50., 90., 99., 99.9})
    late[fmt::format("p{}", q)] = rounded(live.lateness.percentile(q), 6);
  simulated["token_lateness"] = late;
  out["tpsim"] = simulated;
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string load_json(const LiveStatistics& live) {
  ordered_json load;
  load["dp_rank"] = 0;
  load["num_reqs"] = live.num_running_reqs + live.num_queue_reqs;
  load["num_waiting_reqs"] = live.num_queue_reqs;
  load["num_tokens"] = live.kv_used_tokens + live.pending_prefill_tokens;
  load["num_pending_tokens"] = live.pending_prefill_tokens;
  load["ts_tic"] = live.now;
  return ordered_json::array({load}).dump();
}

std::string loads_json(const ServerInfo& info, const LiveStatistics& live) {
  ordered_json load = core_load(live);
  load["num_total_reqs"] = live.num_running_reqs + live.num_queue_reqs;
  ordered_json aggregate;
  aggregate["total_running_reqs"] = load["num_running_reqs"];
  aggregate["total_waiting_reqs"] = load["num_waiting_reqs"];
  aggregate["total_reqs"] = load["num_total_reqs"];
  aggregate["total_used_tokens"] = load["num_used_tokens"];
  aggregate["total_tokens"] = load["num_total_tokens"];
  aggregate["avg_token_usage"] = load["token_usage"];
  aggregate["avg_throughput"] = load["gen_throughput"];
  aggregate["avg_utilization"] = load["utilization"];
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  ordered_json out;
  out["timestamp"] =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06d}+00:00",
                  fmt::gmtime(static_cast<std::time_t>(micros / 1'000'000)), micros % 1'000'000);
  out["version"] = info.sglang_release;
  out["dp_rank_count"] = 1;
  out["loads"] = ordered_json::array({load});
  out["aggregate"] = aggregate;
  return out.dump();
}

namespace {

ordered_json model_card(const ServerInfo& info) {
  ordered_json card;
  card["id"] = info.served_model_name;
  card["object"] = "model";
  card["created"] = info.started;
  card["owned_by"] = "sglang";
  card["root"] = info.served_model_name;
  card["parent"] = nullptr;
  card["max_model_len"] = info.context_length;
  return card;
}

}  // namespace

std::string models_json(const ServerInfo& info) {
  ordered_json out;
  out["object"] = "list";
  out["data"] = ordered_json::array({model_card(info)});
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string model_card_json(const ServerInfo& info) {
  return model_card(info).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace tpsim::launch
