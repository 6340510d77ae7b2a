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
#include <vector>

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

// Of a run's report; a live server has no load of its own. Nor does a server have pairs: to
// `sglang.bench_serving` a key `decode` is a list of servers.
constexpr std::string_view kOfLoads[] = {"dataset_name", "dataset_path",    "flush_cache",    "front_end",
                                         "decode",       "max_concurrency", "num_prompts",    "request_rate",
                                         "seed",         "prefill",         "time_scale",     "session_mode",
                                         "trace",        "trace_format",    "warmup_requests"};

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
  out["served_model_name"] = info.live.served_model_name;
  out["weight_version"] = info.weight_version;
  return out;
}

// What `of` says of each replica and its number, as SGLang does of data-parallel ranks.
template <typename Of>
std::vector<ordered_json> of_replicas(const LiveStatistics& live, const Of& of) {
  std::vector<ordered_json> each;
  for (const LiveStatistics& replica : live.replicas) each.push_back(of(replica, each.size()));
  if (each.empty()) each.push_back(of(live, 0));
  return each;
}

// GetLoadsReqOutput of managers/io_struct.py; of a replica all data-parallel ranks together.
ordered_json core_load(const LiveStatistics& live, std::size_t rank) {
  return {{"dp_rank", rank},
          {"num_running_reqs", live.num_running_reqs},
          {"num_waiting_reqs", live.num_queue_reqs},
          {"num_used_tokens", live.kv_used_tokens},
          {"num_total_tokens", live.kv_used_tokens + live.pending_prefill_tokens},
          {"max_total_num_tokens", live.description.max_total_num_tokens},
          {"token_usage", rounded(share(live.kv_used_tokens, live.description.max_total_num_tokens), 4)},
          {"gen_throughput", rounded(live.gen_throughput, 2)},
          {"cache_hit_rate", rounded(live.cache_hit_rate, 4)},
          {"utilization", rounded(live.utilization, 4)},
          {"max_running_requests", live.description.max_running_requests},
          {"num_total_reqs", live.num_running_reqs + live.num_queue_reqs}};
}

std::vector<ordered_json> model_cards(const ServerInfo& info) {
  std::vector<ordered_json> cards;
  const auto add = [&](const std::string& name, std::uint32_t context_length) {
    cards.push_back({{"id", name},
                     {"object", "model"},
                     {"created", info.started},
                     {"owned_by", "sglang"},
                     {"root", name},
                     {"parent", nullptr},
                     {"max_model_len", context_length}});
  };
  for (const auto& [name, context_length] : info.models) add(name, context_length);
  if (cards.empty()) add(info.live.served_model_name, info.live.context_length);
  return cards;
}

std::string text(const ordered_json& body) {
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

struct Refused {
  std::string_view why;
  std::vector<std::string_view> paths;  // those that end with "/" are prefixes
};

const std::vector<Refused> kRefused = {
    {"answers other than tokens (embeddings, classes, scores) are not simulated",
     {"/encode", "/classify", "/v1/embeddings", "/v1/classify", "/v1/score", "/v1/rerank"}},
    {"is a protocol that is not spoken here; use /v1/chat/completions or /generate",
     {"/v1/responses", "/v1/responses/", "/v1/messages", "/v1/messages/count_tokens", "/vertex_generate",
      "/api/chat", "/api/generate", "/api/tags", "/api/show"}},
    {"audio is not simulated", {"/v1/audio/transcriptions"}},
    {"sessions are not simulated; send the whole prompt, its prefix is found in the cache",
     {"/open_session", "/close_session"}},
    {"there is no GPU here to profile; `tpsim run --trace-out FILE` writes what the simulated ranks do",
     {"/start_profile", "/stop_profile", "/set_trace_level"}},
    {"nobody routes tokens to experts here; --expert-distribution says how they are spread",
     {"/start_expert_distribution_record", "/stop_expert_distribution_record",
      "/dump_expert_distribution_record"}},
    {"there are no weights here that could be changed or sent",
     {"/update_weights_from_disk", "/update_weights_from_tensor", "/update_weights_from_distributed",
      "/update_weights_from_ipc", "/update_weight_version", "/init_weights_update_group",
      "/destroy_weights_update_group", "/init_weights_send_group_for_remote_instance",
      "/send_weights_to_remote_instance", "/get_remote_instance_transfer_engine_info",
      "/remote_instance_transfer_engine_info", "/get_weights_by_name", "/weights_checker",
      "/release_memory_occupation", "/resume_memory_occupation"}},
    {"is deprecated; use /model_info", {"/get_weight_version", "/weight_version"}},
    {"LoRA adapters are not simulated",
     {"/load_lora_adapter", "/load_lora_adapter_from_tensors", "/unload_lora_adapter"}},
    {"storage of a host cache is not attached, nor cleared, while a server runs",
     {"/clear_hicache_storage_backend", "/hicache/"}},
    {"speculation from a corpus of texts is not simulated",
     {"/add_external_corpus", "/remove_external_corpus", "/list_external_corpora"}},
    {"the server's state cannot be changed while it runs; start it with other flags",
     {"/set_internal_state", "/configure_logging", "/slow_down", "/freeze_gc", "/pause_generation",
      "/continue_generation", "/dumper/"}},
    {"answers have no tool calls and no reasoning to be parsed",
     {"/parse_function_call", "/separate_reasoning"}},
};

}  // namespace

std::string model_info_json(const ServerInfo& info) {
  return text(
      {{"model_path", info.live.model_path},
       {"tokenizer_path", info.tokenizer_path},
       {"is_generation", true},
       {"preferred_sampling_params", nullptr},
       {"weight_version", info.weight_version},
       {"has_image_understanding", info.has_image_understanding},
       {"has_audio_understanding", false},
       {"model_type", nullptr},
       {"architectures", info.architectures.empty() ? ordered_json() : ordered_json(info.architectures)}});
}

std::string server_info_json(const ServerInfo& info, const LiveStatistics& live) {
  ordered_json out = server_args(info);
  const ordered_json state = out;
  ordered_json late;
  for (const double q : {50., 90., 99., 99.9})
    late[fmt::format("p{}", q)] = rounded(live.lateness.percentile(q), 6);
  out["status"] = "ready";
  out["max_total_num_tokens"] = info.max_total_num_tokens;
  out["max_req_input_len"] = info.max_req_input_len;
  std::vector<ordered_json> states = of_replicas(live, [&](const LiveStatistics& of, std::size_t) {
    ordered_json state_of = state;
    state_of["last_gen_throughput"] = of.gen_throughput;
    state_of["memory_usage"] = {{"token_capacity", info.max_total_num_tokens}};
    state_of["effective_max_running_requests_per_dp"] = info.max_running_requests;
    if (of.spec_accept_length > 0) state_of["avg_spec_accept_length"] = of.spec_accept_length;
    return state_of;
  });
  if (live.replicas.empty()) states.resize(info.live.dp_size, states.front());
  out["internal_states"] = std::move(states);
  out["version"] = info.sglang_release;
  out["tpsim"] = {{"executor", live.description.executor},
                  {"speedup", info.live.speedup},
                  {"front_end", info.front_end},
                  {"client_seconds", info.client_seconds},
                  {"tokenizer", info.tokenizer},
                  {"real_tokenizer", info.real_tokenizer},
                  {"chat_template", info.chat_template},
                  {"real_chat_template", info.real_chat_template},
                  {"notes", info.notes},
                  {"wall_lag", live.wall_lag},
                  {"max_wall_lag", live.max_wall_lag},
                  {"token_lateness", late}};
  return text(out);
}

std::string load_json(const LiveStatistics& live) {
  return ordered_json(of_replicas(live,
                                  [](const LiveStatistics& of, std::size_t rank) -> ordered_json {
                                    return {{"dp_rank", rank},
                                            {"num_reqs", of.num_running_reqs + of.num_queue_reqs},
                                            {"num_waiting_reqs", of.num_queue_reqs},
                                            {"num_tokens", of.kv_used_tokens + of.pending_prefill_tokens},
                                            {"num_pending_tokens", of.pending_prefill_tokens},
                                            {"ts_tic", of.now}};
                                  }))
      .dump();
}

std::string loads_json(const ServerInfo& info, const LiveStatistics& live) {
  const std::vector<ordered_json> loads = of_replicas(live, core_load);
  const auto sum = [&](const char* key) {
    ordered_json total = loads.front()[key];
    for (std::size_t i = 1; i < loads.size(); ++i)
      total = total.is_number_float()
                  ? ordered_json(total.get<double>() + loads[i][key].get<double>())
                  : ordered_json(total.get<std::uint64_t>() + loads[i][key].get<std::uint64_t>());
    return total;
  };
  const auto mean = [&](const char* key, int digits) {
    return rounded(sum(key).get<double>() / static_cast<double>(loads.size()), digits);
  };
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  const ordered_json out = {
      {"timestamp",
       fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06d}+00:00",
                   fmt::gmtime(static_cast<std::time_t>(micros / 1'000'000)), micros % 1'000'000)},
      {"version", info.sglang_release},
      {"dp_rank_count", loads.size()},
      {"loads", loads},
      {"aggregate",
       {{"total_running_reqs", sum("num_running_reqs")},
        {"total_waiting_reqs", sum("num_waiting_reqs")},
        {"total_reqs", sum("num_total_reqs")},
        {"total_used_tokens", sum("num_used_tokens")},
        {"total_tokens", sum("num_total_tokens")},
        {"avg_token_usage", mean("token_usage", 4)},
        {"avg_throughput", mean("gen_throughput", 2)},
        {"avg_utilization", mean("utilization", 4)}}}};
  return out.dump();
}

// As sglang_router 0.3.2 answered with two workers behind it; they have no addresses here, but numbers.
std::string workers_json(const LiveStatistics& live) {
  const std::vector<ordered_json> workers =
      of_replicas(live, [](const LiveStatistics& of, std::size_t number) -> ordered_json {
        return {{"id", fmt::format("replica-{}", number)},
                {"url", fmt::format("replica-{}", number)},
                {"model_id", of.description.served_model_name},
                {"priority", 50},
                {"cost", 1.0},
                {"worker_type", of.description.worker_type},
                {"is_healthy", true},
                {"load", of.open_requests},
                {"connection_mode", "HTTP"},
                {"metadata",
                 {{"dp_size", "1"},
                  {"model_path", of.description.model_path},
                  {"served_model_name", of.description.served_model_name},
                  {"tp_size", std::to_string(of.description.tp_size)}}},
                {"disable_health_check", false}};
      });
  const auto of_type = [&](std::string_view type) {
    return std::ranges::count(workers, type, [](const ordered_json& of) { return of["worker_type"]; });
  };
  return text({{"workers", workers},
               {"total", workers.size()},
               {"stats",
                {{"prefill_count", of_type("prefill")},
                 {"decode_count", of_type("decode")},
                 {"regular_count", of_type("regular")}}}});
}

std::string router_loads_json(const LiveStatistics& live) {
  ordered_json out;
  out["workers"] = of_replicas(live, [](const LiveStatistics& of, std::size_t number) -> ordered_json {
    return {{"worker", fmt::format("replica-{}", number)},
            {"load", of.kv_used_tokens + of.pending_prefill_tokens}};
  });
  return text(out);
}

std::string router_flush_json(std::size_t replicas) {
  return text({{"status", "success"},
               {"message", fmt::format("Successfully flushed cache on all {} HTTP workers", replicas)},
               {"workers_flushed", replicas},
               {"total_http_workers", replicas},
               {"total_workers", replicas}});
}

std::string router_readiness_json(std::size_t replicas) {
  return text({{"status", "ready"}, {"healthy_workers", replicas}, {"total_workers", replicas}});
}

std::string models_json(const ServerInfo& info) {
  return text({{"object", "list"}, {"data", model_cards(info)}});
}

std::optional<std::string> model_card_json(const ServerInfo& info, std::string_view name) {
  for (const ordered_json& card : model_cards(info))
    if (card["id"] == name) return text(card);
  return std::nullopt;
}

std::optional<RefusedRoute> find_refused_route(std::string_view path) {
  for (const Refused& refused : kRefused) {
    for (const std::string_view route : refused.paths) {
      if (route.ends_with('/') ? path.starts_with(route) : path == route)
        return RefusedRoute{.path = route, .why = refused.why};
    }
  }
  return std::nullopt;
}

}  // namespace tpsim::launch
