#include "launch/serve/page/prometheus_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

namespace tpsim::launch {
namespace {

// A label's value between its quotes.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

// SGLang's engine_type of a server that both prefills and decodes.
constexpr const char* kEngineType = "unified";

double share(std::uint64_t part, std::uint64_t rest) {
  const std::uint64_t all = part + rest;
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

double full(const LiveQueues& q) {
  return share(q.kv_used_tokens, q.kv_evictable_tokens + q.kv_available_tokens);
}
double swa(const LiveQueues& q) {
  return share(q.swa_used_tokens, q.swa_evictable_tokens + q.swa_available_tokens);
}
double states(const LiveQueues& q) { return share(q.states_used, q.states_evictable + q.states_available); }

class Metrics {
 public:
  explicit Metrics(const LiveStatistics& statistics)
      : s_(statistics),
        tokenizer_{{"model_name", statistics.description.served_model_name}, {"engine_type", kEngineType}},
        scheduler_(tokenizer_) {
    for (const char* rank : {"tp_rank", "pp_rank", "moe_ep_rank"}) scheduler_.emplace_back(rank, "0");
    if (s_.ranks.empty()) queues_.emplace_back(scheduler_, s_);
    for (std::size_t rank = 0; rank < s_.ranks.size(); ++rank) {
      // Of its tensor-parallel ranks the first one speaks.
      const std::size_t first =
          s_.description.replicas > 1 ? 0 : rank * s_.description.tp_size / s_.ranks.size();
      MetricLabels labels = tokenizer_;
      labels.emplace_back("tp_rank", fmt::format("{}", first));
      for (const char* other : {"pp_rank", "moe_ep_rank"}) labels.emplace_back(other, "0");
      labels.emplace_back("dp_rank", fmt::format("{}", rank));
      queues_.emplace_back(std::move(labels), s_.ranks[rank]);
    }
  }

  std::string write() {
    requests();
    pools();
    speculation();
    passes();
    constants();
    latencies();
    http();
    own();
    return out_.take();
  }

 private:
  // Of SGLang's scheduler.
  void gauge(const char* name, const char* help, double value) {
    out_.metric(name, "gauge", help);
    out_.sample(scheduler_, value);
  }
  // Of each data-parallel rank's; `value`: a member of its queues, or what is called with them.
  template <typename Value>
  void gauge_each(const char* name, const char* help, const Value& value) {
    out_.metric(name, "gauge", help);
    for (const auto& [labels, queues] : queues_)
      out_.sample(labels, static_cast<double>(std::invoke(value, queues)));
  }
  void counter(const char* name, const char* help, double value) {
    out_.metric(name, "counter", help);
    out_.sample(scheduler_, value);
  }
  // Of its tokenizer manager.
  void total(const char* name, const char* help, double value) {
    out_.metric(name, "counter", help);
    out_.sample(tokenizer_, value);
  }
  // Of each of several replicas.
  void of_replica(const char* name, const char* type, const char* help,
                  std::uint64_t LiveStatistics::*count) {
    if (s_.replicas.empty()) return;
    out_.metric(name, type, help);
    MetricLabels labels = tokenizer_;
    for (std::size_t i = 0; i < s_.replicas.size(); ++i) {
      labels.front().second = s_.replicas[i].description.served_model_name;
      out_.sample(labels, number(s_.replicas[i].*count), {{"replica", std::to_string(i)}});
    }
  }
  void histogram(const char* name, const char* help, const MetricLabels& labels,
                 const LiveHistogram& values) {
    out_.metric(name, "histogram", help);
    out_.histogram(labels, values);
  }
  static double number(std::uint64_t count) { return static_cast<double>(count); }

  void requests() {
    gauge_each("sglang:num_running_reqs", "The number of running requests.", &LiveQueues::num_running_reqs);
    gauge_each("sglang:num_queue_reqs", "The number of requests in the waiting queue.",
               &LiveQueues::num_queue_reqs);
    gauge("sglang:num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", 0);
    gauge("sglang:num_paused_reqs", "The number of paused requests by async weight sync.", 0);
    gauge("sglang:num_prefill_bootstrap_queue_reqs", "The number of requests in the prefill bootstrap queue.",
          0);
    gauge("sglang:num_prefill_inflight_queue_reqs", "The number of requests in the prefill inflight queue.",
          0);
    gauge("sglang:num_decode_prealloc_queue_reqs", "The number of requests in the decode prealloc queue.", 0);
    gauge("sglang:num_decode_transfer_queue_reqs", "The number of requests in the decode transfer queue.", 0);
    gauge("sglang:gen_throughput", "The generation throughput (token/s).", s_.gen_throughput);
    gauge("sglang:cache_hit_rate", "The prefix cache hit rate.", s_.cache_hit_rate);
    gauge("sglang:decode_sum_seq_lens", "The sum of all sequence lengths in decode.",
          number(s_.decode_sum_seq_lens));
    counter("sglang:num_retracted_requests_total", "Total number of retracted requests.",
            number(s_.retractions));
    counter("sglang:num_retracted_input_tokens_total", "Total number of retracted input tokens.",
            number(s_.retracted_input_tokens));
    counter("sglang:num_retracted_output_tokens_total", "Total number of retracted output tokens.",
            number(s_.retracted_output_tokens));
    gauge_each("sglang:new_token_ratio", "The new token ratio.", &LiveQueues::new_token_ratio);
    gauge("sglang:fwd_occupancy", "Forward pass GPU occupancy percentage.", 100 * s_.utilization);
  }

  void pools() {
    // SGLang rounds this one.
    gauge_each("sglang:token_usage", "The token usage.", [](const LiveQueues& q) {
      return std::round(100 * std::max({full(q), swa(q), states(q)})) / 100;
    });
    gauge_each("sglang:full_token_usage", "The token usage for full attention layers.", full);
    gauge_each("sglang:swa_token_usage", "The token usage for SWA layers.", swa);
    gauge_each("sglang:mamba_usage", "The token usage for Mamba layers.", states);
    gauge_each("sglang:num_used_tokens", "The number of used tokens.",
               [](const LiveQueues& q) { return std::max(q.kv_used_tokens, q.swa_used_tokens); });
    gauge_each("sglang:kv_available_tokens", "Number of free token slots in the KV cache pool.",
               &LiveQueues::kv_available_tokens);
    gauge_each("sglang:kv_evictable_tokens",
               "Number of evictable (radix-cached) token slots in the KV cache pool.",
               &LiveQueues::kv_evictable_tokens);
    gauge_each("sglang:kv_used_tokens", "Number of actively used token slots in the KV cache pool.",
               &LiveQueues::kv_used_tokens);
    gauge_each("sglang:swa_available_tokens", "Number of free token slots in the SWA pool (hybrid-SWA only).",
               &LiveQueues::swa_available_tokens);
    gauge_each("sglang:swa_evictable_tokens",
               "Number of evictable (radix-cached) token slots in the SWA pool.",
               &LiveQueues::swa_evictable_tokens);
    gauge_each("sglang:swa_used_tokens", "Number of actively used token slots in the SWA pool.",
               &LiveQueues::swa_used_tokens);
    gauge_each("sglang:mamba_available_tokens",
               "Number of free state slots in the mamba SSM pool (hybrid-SSM only).",
               &LiveQueues::states_available);
    gauge_each("sglang:mamba_evictable_tokens",
               "Number of evictable (radix-cached) state slots in the mamba SSM pool.",
               &LiveQueues::states_evictable);
    gauge_each("sglang:mamba_used_tokens", "Number of actively used state slots in the mamba SSM pool.",
               &LiveQueues::states_used);
    out_.metric("sglang:evicted_tokens_total", "counter", "The number of tokens evicted from GPU to CPU.");
    out_.sample({{"cache_type", "RadixCache"}}, number(s_.evicted_tokens));
  }

  void speculation() {
    // One token of a step is sampled, the others of it are accepted drafts.
    const double drafts = static_cast<double>(s_.description.speculative_num_draft_tokens) - 1;
    const double accepted = std::max(0.0, s_.spec_accept_length - 1);
    gauge("sglang:spec_accept_length",
          "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
          s_.spec_accept_length);
    gauge("sglang:spec_accept_rate",
          "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
          drafts > 0 ? accepted / drafts : 0);
  }

  void passes() {
    gauge("sglang:is_cuda_graph", "Whether the batch is using CUDA graph.", s_.last_pass_used_graph ? 1 : 0);
    const std::uint64_t decodes = s_.steps - std::min(s_.steps, s_.prefill_steps);
    const std::uint64_t replayed = std::min(decodes, s_.graph_steps);
    out_.metric("sglang:cuda_graph_passes_total", "counter",
                "Total number of forward passes categorized by CUDA graph.");
    out_.sample(scheduler_, number(replayed), {{"mode", "decode_cuda_graph"}});
    out_.sample(scheduler_, number(decodes - replayed), {{"mode", "decode_none"}});
    out_.sample(scheduler_, number(s_.prefill_steps), {{"mode", "prefill_none"}});
    out_.metric("sglang:realtime_tokens_total", "counter",
                "Total number of tokens processed (updated on each log interval). mode: prefill_compute, "
                "prefill_cache, decode.");
    out_.sample(scheduler_, number(s_.prefill_compute_tokens), {{"mode", "prefill_compute"}});
    out_.sample(scheduler_, number(s_.prefill_cache_tokens), {{"mode", "prefill_cache"}});
    out_.sample(scheduler_, number(s_.decode_tokens), {{"mode", "decode"}});
    out_.metric("sglang:forward_execution_seconds_total", "counter",
                "Total time that GPU is busy executing model forward passes. Refer to ForwardMode for "
                "category labels.");
    out_.sample(scheduler_, s_.prefill_gpu_seconds, {{"category", "extend"}});
    out_.sample(scheduler_, std::max(0.0, s_.gpu_seconds - s_.prefill_gpu_seconds), {{"category", "decode"}});
  }

  void constants() {
    const LiveDescription& d = s_.description;
    gauge("sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.",
          number(d.max_total_num_tokens));
    gauge("sglang:page_size", "KV cache page size in tokens.", d.page_size);
    gauge("sglang:num_pages", "Number of KV cache pages.",
          number(d.max_total_num_tokens / std::max<std::uint64_t>(1, d.page_size)));
    gauge("sglang:context_len", "Maximum context length.", d.context_length);
    gauge("sglang:engine_startup_time", "The time taken for the engine to start up.", d.startup_seconds);
  }

  void latencies() {
    histogram("sglang:queue_time_seconds", "Histogram of queueing time in seconds.", scheduler_,
              s_.queue_time);
    total("sglang:prompt_tokens_total", "Number of prefill tokens processed.", number(s_.prompt_tokens));
    total("sglang:generation_tokens_total", "Number of generation tokens processed.",
          number(s_.generation_tokens));
    histogram("sglang:prompt_tokens_histogram", "Histogram of prompt token length.", tokenizer_,
              s_.prompt_length);
    histogram("sglang:uncached_prompt_tokens_histogram",
              "Histogram of uncached (compute) prompt token length.", tokenizer_, s_.uncached_prompt_length);
    histogram("sglang:generation_tokens_histogram", "Histogram of generation token length.", tokenizer_,
              s_.generation_length);
    out_.metric("sglang:cached_tokens_total", "counter",
                "Number of cached prompt tokens by source (device/host/storage).");
    out_.sample(tokenizer_, number(s_.cached_tokens), {{"cache_source", "device"}});
    total("sglang:num_requests_total", "Number of requests processed.", number(s_.finished_requests));
    total("sglang:num_aborted_requests_total", "Number of requests aborted.", number(s_.aborted_requests));
    histogram("sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
              tokenizer_, s_.ttft);
    histogram("sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
              tokenizer_, s_.inter_token);
    histogram("sglang:e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds",
              tokenizer_, s_.e2e);
  }

  void http() {
    const auto each = [this](const HttpActive& calls) {
      for (const auto& [of, count] : calls)
        out_.sample({{"endpoint", std::string(of.first)}, {"method", std::string(of.second)}}, number(count));
    };
    HttpActive requests;
    for (const auto& [of, count] : s_.http_responses) requests[{std::get<0>(of), std::get<1>(of)}] += count;
    out_.metric("sglang:http_requests_active", "gauge", "Number of currently active HTTP requests");
    each(s_.http_active);
    out_.metric("sglang:http_requests_total", "counter",
                "Total number of HTTP requests by endpoint and method");
    each(requests);
    out_.metric("sglang:http_responses_total", "counter",
                "Total number of HTTP responses by endpoint and status code");
    for (const auto& [of, count] : s_.http_responses) {
      const auto& [endpoint, method, status] = of;
      out_.sample({{"endpoint", std::string(endpoint)},
                   {"status_code", std::to_string(status)},
                   {"method", std::string(method)}},
                  number(count));
    }
  }

  // What SGLang has no name for.
  void own() {
    out_.metric("tpsim:speedup", "gauge", "Simulated seconds in a second of the wall.");
    out_.sample(tokenizer_, s_.description.speedup);
    out_.metric("tpsim:simulated_seconds", "gauge", "Seconds of the simulated clock since the start.");
    out_.sample(tokenizer_, s_.now);
    out_.metric("tpsim:wall_lag_seconds", "gauge",
                "Seconds of the wall that the simulated clock is behind where it should be.");
    out_.sample(tokenizer_, s_.wall_lag);
    histogram(
        "tpsim:token_lateness_seconds",
        "Histogram of the seconds of the wall from when a token was due until its client's socket had it.",
        tokenizer_, s_.lateness);
    out_.metric("tpsim:open_streams", "gauge", "Requests whose client is connected.");
    out_.sample(tokenizer_, number(s_.open_streams));
    total("tpsim:rejected_requests_total", "Requests that fit neither context nor pool.",
          number(s_.rejected_requests));
    total("tpsim:invalid_requests_total", "Requests answered with 4xx before a scheduler saw them.",
          number(s_.invalid_requests));
    of_replica("tpsim:replica_requests_total", "counter", "Requests that the router gave to a replica.",
               &LiveStatistics::accepted_requests);
    of_replica("tpsim:replica_open_requests", "gauge", "Requests of a replica that have not ended.",
               &LiveStatistics::open_requests);
    of_replica("tpsim:replica_prompt_tokens_total", "counter",
               "Prompt tokens of requests that a replica has answered.", &LiveStatistics::prompt_tokens);
    of_replica("tpsim:replica_cached_tokens_total", "counter", "Prompt tokens of them that it had cached.",
               &LiveStatistics::cached_tokens);
    total("tpsim:merged_deltas_total", "Pieces of answers that went out together: a reader was slow.",
          number(s_.merged_deltas));
  }

  const LiveStatistics& s_;
  const MetricLabels tokenizer_;
  MetricLabels scheduler_;
  std::vector<std::pair<MetricLabels, LiveQueues>> queues_;
  Exposition out_;
};

}  // namespace

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  const std::size_t point = text.find('.');
  constexpr std::size_t kMostDigits = 6;  // before the point
  if (value <= 0 || point == std::string::npos || point <= kMostDigits) return text;
  std::string mantissa = text.substr(0, 1) + "." + text.substr(1, point - 1) + text.substr(point + 1);
  mantissa.erase(mantissa.find_last_not_of("0.") + 1);
  return fmt::format("{}e+{:02}", mantissa, point - 1);
}

void Exposition::metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void Exposition::line(std::string_view suffix, const MetricLabels& labels, const MetricLabels& more,
                      double value) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const MetricLabels* list : {&labels, &more}) {
    for (const auto& [key, text] : *list) {
      fmt::format_to(std::back_inserter(text_), "{}{}=\"{}\"", before, key, escaped(text));
      before = ',';
    }
  }
  if (before == ',') text_ += '}';
  fmt::format_to(std::back_inserter(text_), " {}\n", prometheus_number(value));
}

void Exposition::sample(const MetricLabels& labels, double value, const MetricLabels& more) {
  line("", labels, more, value);
}

void Exposition::histogram(const MetricLabels& labels, const LiveHistogram& values) {
  double below = 0;
  for (std::size_t i = 0; i < values.counts.size(); ++i) {
    below += static_cast<double>(values.counts[i]);
    const double edge = i < values.edges.size() ? values.edges[i] : HUGE_VAL;
    line("_bucket", labels, {{"le", prometheus_number(edge)}}, below);
  }
  line("_count", labels, {}, below);
  line("_sum", labels, {}, values.sum);
}

std::string prometheus_text(const LiveStatistics& statistics) { return Metrics(statistics).write(); }

}  // namespace tpsim::launch
