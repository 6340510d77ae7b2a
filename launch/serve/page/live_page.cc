#include "launch/serve/page/live_page.h"

#include <nlohmann/json.hpp>

#include "launch/report/html_page.h"

namespace tpsim::launch {
namespace {

using Json = nlohmann::ordered_json;

// Milliseconds of seconds; null where there are no values.
Json latency(const LiveHistogram& values) {
  const std::uint64_t count = values.count();
  if (count == 0) return {{"count", 0}};
  return {{"count", count},
          {"mean_ms", 1e3 * values.sum / static_cast<double>(count)},
          {"p50_ms", 1e3 * values.percentile(50)},
          {"p90_ms", 1e3 * values.percentile(90)},
          {"p99_ms", 1e3 * values.percentile(99)}};
}

Json description(const LiveDescription& d) {
  return {{"model", d.served_model_name},
          {"model_path", d.model_path},
          {"hardware", d.hardware},
          {"attention_backend", d.attention_backend},
          {"executor", d.executor},
          {"tokenizer", d.tokenizer},
          {"real_tokenizer", d.real_tokenizer},
          {"tp_size", d.tp_size},
          {"pp_size", d.pp_size},
          {"dp_size", d.dp_size},
          {"replicas", d.replicas},
          {"router_policy", d.router_policy},
          {"speedup", d.speedup},
          {"page_size", d.page_size},
          {"max_total_num_tokens", d.max_total_num_tokens},
          {"max_running_requests", d.max_running_requests},
          {"context_length", d.context_length},
          {"speculative", d.speculative}};
}

// A row of figures whose columns are named once: samples are most of the answer.
Json row(const LiveSample& s) {
  return {s.time,           s.seconds,         s.waiting,
          s.running,        s.kv_used_tokens,  s.kv_cached_tokens,
          s.kv_free_tokens, s.prompt_tokens,   s.cached_tokens,
          s.prefill_tokens, s.decode_tokens,   s.finished,
          s.rejected,       s.aborted,         s.steps,
          s.gpu_seconds,    1e3 * s.mean_ttft, 1e3 * s.mean_inter_token,
          s.wall_lag};
}

constexpr const char* kColumns[] = {"time",      "seconds",  "waiting",        "running", "kv_used",
                                    "kv_cached", "kv_free",  "prompt",         "cached",  "prefill",
                                    "decode",    "finished", "rejected",       "aborted", "steps",
                                    "gpu",       "ttft_ms",  "inter_token_ms", "wall_lag"};

}  // namespace

const std::string& live_page() {
  static const std::string page = fill_page(live_template(), nullptr);
  return page;
}

std::string live_page_data(const LiveStatistics& s, double after) {
  Json samples = Json::array();
  for (const LiveSample& sample : s.samples)
    if (sample.time > after) samples.push_back(row(sample));
  Json replicas = Json::array();
  for (const LiveStatistics& of : s.replicas)
    replicas.push_back({{"model", of.description.served_model_name},
                        {"hardware", of.description.hardware},
                        {"accepted", of.accepted_requests},
                        {"finished", of.finished_requests},
                        {"running", of.num_running_reqs},
                        {"waiting", of.num_queue_reqs},
                        {"kv_used", of.kv_used_tokens},
                        {"kv_pool", of.kv_used_tokens + of.kv_evictable_tokens + of.kv_available_tokens},
                        {"prompt_tokens", of.prompt_tokens},
                        {"cached_tokens", of.cached_tokens},
                        {"gen_throughput", of.gen_throughput},
                        {"utilization", of.utilization}});
  const Json data = {{"description", description(s.description)},
                     {"now", s.now},
                     {"wall_uptime", s.wall_uptime},
                     {"wall_lag", s.wall_lag},
                     {"max_wall_lag", s.max_wall_lag},
                     {"draining", s.draining},
                     {"running", s.num_running_reqs},
                     {"waiting", s.num_queue_reqs},
                     {"kv_used", s.kv_used_tokens},
                     {"kv_cached", s.kv_evictable_tokens},
                     {"kv_free", s.kv_available_tokens},
                     {"swa_used", s.swa_used_tokens},
                     {"swa_pool", s.swa_used_tokens + s.swa_evictable_tokens + s.swa_available_tokens},
                     {"states_used", s.states_used},
                     {"state_pool", s.states_used + s.states_evictable + s.states_available},
                     {"gen_throughput", s.gen_throughput},
                     {"cache_hit_rate", s.cache_hit_rate},
                     {"utilization", s.utilization},
                     {"accept_length", s.spec_accept_length},
                     {"open_connections", s.open_connections},
                     {"open_streams", s.open_streams},
                     {"accepted", s.accepted_requests},
                     {"finished", s.finished_requests},
                     {"rejected", s.rejected_requests},
                     {"aborted", s.aborted_requests},
                     {"invalid", s.invalid_requests},
                     {"prompt_tokens", s.prompt_tokens},
                     {"cached_tokens", s.cached_tokens},
                     {"generation_tokens", s.generation_tokens},
                     {"retractions", s.retractions},
                     {"evicted_tokens", s.evicted_tokens},
                     {"steps", s.steps},
                     {"graph_steps", s.graph_steps},
                     {"gpu_seconds", s.gpu_seconds},
                     {"merged_deltas", s.merged_deltas},
                     {"ttft", latency(s.ttft)},
                     {"inter_token", latency(s.inter_token)},
                     {"e2e", latency(s.e2e)},
                     {"queue_time", latency(s.queue_time)},
                     {"replicas", std::move(replicas)},
                     {"columns", kColumns},
                     {"samples", std::move(samples)}};
  return data.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tpsim::launch
