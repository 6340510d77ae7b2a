// What a live server has done and is doing: the one source of /metrics, /v1/loads, /get_server_info and the
// live page. Plain values, copied whole by what shows them; the clock's thread fills them
// (server_statistics.h).
//
// Seconds are those of the replica's clock, which runs LiveDescription::speedup times as fast as the wall.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tpsim::launch {

// Counts of values by upper edges, as Prometheus keeps them, and by finer ones of its own for percentiles.
// Invariant: counts.size() == edges.size() + 1; the last counts what is above all edges; counts are not
// cumulative.
struct LiveHistogram {
  explicit LiveHistogram(std::span<const double> upper_edges)
      : edges(upper_edges), counts(upper_edges.size() + 1) {}
  // `times` values of `value`.
  void observe(double value, std::uint64_t times = 1);
  std::uint64_t count() const;
  // The q-th percentile, q in [0, 100], within 1 %; 0 of no values.
  double percentile(double q) const;

  std::span<const double> edges;  // ascending, of a constant
  std::vector<std::uint64_t> counts;
  double sum = 0;
  std::vector<std::uint64_t> fine;  // by bins that grow by 2 % from 1e-6; empty: no values
};

// SGLang 0.5.12's default buckets.
// sglang:time_to_first_token_seconds
inline constexpr double kTtftEdges[] = {0.1, 0.2, 0.4, 0.6, 0.8, 1,  2,   4,   6,
                                        8,   10,  20,  40,  60,  80, 100, 200, 400};
// sglang:inter_token_latency_seconds
inline constexpr double kInterTokenEdges[] = {0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025,
                                              0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200, 0.400,
                                              0.600, 0.800, 1,     2,     4,     6,     8};
// sglang:e2e_request_latency_seconds
inline constexpr double kE2eEdges[] = {0.1, 0.2, 0.4, 0.6, 0.8, 1,   2,   4,   6,    8,    10,
                                       20,  40,  60,  80,  100, 200, 400, 600, 1200, 1800, 2400};
// sglang:queue_time_seconds
inline constexpr double kQueueTimeEdges[] = {
    0,   0.001, 0.005, 0.010, 0.050, 0.100, 0.200, 0.500, 1,    2,    3,    4,   5,   10,
    15,  20,    30,    40,    50,    60,    70,    80,    90,   100,  200,  300, 400, 500,
    600, 700,   800,   900,   1000,  1200,  1400,  1600,  1800, 2000, 2500, 3000};
// sglang:prompt_tokens_histogram, generation_tokens_histogram …
inline constexpr double kTokenCountEdges[] = {100,   300,   500,   700,   1000,  1500,  2000,  3000,  4000,
                                              5000,  6000,  7000,  8000,  9000,  10000, 12500, 15000, 17500,
                                              20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000,
                                              1e5,   2e5,   3e5,   4e5,   6e5,   8e5,   1e6,   1.1e6};
// tpsim's own: tpsim:token_lateness_seconds.
inline constexpr double kLatenessEdges[] = {2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3,
                                            2e-3, 5e-3, 1e-2, 5e-2, 0.2,  1};

// What stays as it is while the server runs.
struct LiveDescription {
  std::string served_model_name;
  std::string model_path;
  std::string hardware;
  std::string attention_backend;  // or the pair, "flashinfer+fa3"
  std::string executor;           // "modeled", "numeric"
  std::string tokenizer;          // its name; real_tokenizer: whether it is the model's own
  bool real_tokenizer = false;
  std::uint32_t tp_size = 1, pp_size = 1, dp_size = 1;
  std::string worker_type = "regular";  // as the router calls it; of a pair "prefill" or "decode"
  std::uint32_t replicas = 1;           // servers, or a server's schedulers without data-parallel attention
  std::string router_policy = {};       // of the router before them; empty: there is none
  double speedup = 1;
  std::uint32_t page_size = 1;             // tokens
  std::uint64_t max_total_num_tokens = 0;  // of the KV pools, of all data-parallel ranks and replicas
  std::uint32_t max_running_requests = 0;  // of all data-parallel ranks and replicas
  std::uint32_t context_length = 0;        // tokens
  bool speculative = false;
  std::uint32_t speculative_num_draft_tokens = 0;
  double startup_seconds = 0;  // of the wall, until it was ready
};

// One point of the last minutes, for the page's curves: what happened in the interval that ends at `time`,
// and how things stood at its end.
struct LiveSample {
  double time = 0;      // seconds of the replica's clock since the start
  double seconds = 0;   // length of the interval
  double wall_lag = 0;  // seconds of the wall that the replica is behind where it should be
  std::uint32_t waiting = 0, running = 0;  // requests
  std::uint64_t kv_used_tokens = 0, kv_cached_tokens = 0, kv_free_tokens = 0;
  std::uint64_t prompt_tokens = 0;   // of requests whose prefill began
  std::uint64_t cached_tokens = 0;   // of them, found in the cache
  std::uint64_t prefill_tokens = 0;  // computed
  std::uint64_t decode_tokens = 0;
  std::uint64_t finished = 0, rejected = 0, aborted = 0;  // requests
  std::uint64_t steps = 0;
  double gpu_seconds = 0;       // of passes
  double mean_ttft = 0;         // of first tokens in the interval, seconds; 0: none
  double mean_inter_token = 0;  // seconds; 0: none
};

// Calls over HTTP by their route's pattern, never what a client sent, and their method: those for tokens that
// are being answered; and answers, by their status, too. Views of constants.
using HttpActive = std::map<std::pair<std::string_view, std::string_view>, std::uint64_t>;
using HttpResponses = std::map<std::tuple<std::string_view, std::string_view, unsigned>, std::uint64_t>;

// How a scheduler stands.
struct LiveQueues {
  std::uint32_t num_running_reqs = 0;
  std::uint32_t num_queue_reqs = 0;
  std::uint64_t kv_used_tokens = 0;       // held by requests, not evictable
  std::uint64_t kv_evictable_tokens = 0;  // cached, nobody's
  std::uint64_t kv_available_tokens = 0;  // free
  // Of the pool of sliding-window layers and of the pool of states; all 0 where there is none.
  std::uint64_t swa_used_tokens = 0, swa_evictable_tokens = 0, swa_available_tokens = 0;
  std::uint64_t states_used = 0, states_evictable = 0, states_available = 0;
  double new_token_ratio = 0;  // SGLang's; of several schedulers that of the first
};

// As LiveQueues, of all data-parallel ranks and replicas together.
struct LiveStatistics : LiveQueues {
  LiveDescription description;
  bool draining = false;   // SIGTERM came: nothing new is accepted
  double wall_uptime = 0;  // seconds of the wall since the start
  double now = 0;          // seconds of the replica's clock since the start
  // How far the replica is behind the wall, in seconds of the wall: above 0 where this machine cannot keep
  // up.
  double wall_lag = 0;
  double max_wall_lag = 0;  // since the start

  // How things stand.
  std::vector<LiveQueues> ranks;             // each data-parallel one, or replica; empty: there is one
  std::uint64_t open_requests = 0;           // accepted, and not over
  std::uint64_t pending_prefill_tokens = 0;  // prompts of waiting requests
  bool last_pass_used_graph = false;
  std::uint64_t decode_sum_seq_lens = 0;  // tokens of the requests that run
  double gen_throughput = 0;              // generated tokens per second over the last few seconds
  double cache_hit_rate = 0;      // of prompt tokens over the last few seconds; 0 where there were none
  double utilization = 0;         // share of the last few seconds in which a pass ran; of several, the mean
  double spec_accept_length = 0;  // tokens kept of a verified step, since the start; 0: no speculation
  std::uint64_t open_connections = 0, open_streams = 0;

  // Since the start.
  std::uint64_t accepted_requests = 0;  // parsed and given to the replica
  std::uint64_t finished_requests = 0;  // answered whole
  std::uint64_t rejected_requests = 0;  // refused by the replica (too long for context or pool)
  std::uint64_t aborted_requests = 0;   // by their client, by /abort_request or at the end of a drain
  std::uint64_t invalid_requests = 0;   // answered with 4xx before the replica saw them
  std::uint64_t prompt_tokens = 0;      // of finished requests
  std::uint64_t cached_tokens = 0;      // of them, found in the cache
  std::uint64_t generation_tokens = 0;  // of finished requests
  std::uint64_t prefill_compute_tokens = 0, prefill_cache_tokens = 0, decode_tokens = 0;  // of passes
  std::uint64_t retractions = 0;
  // Of those that were retracted: their prompts, and the answers that they had so far.
  std::uint64_t retracted_input_tokens = 0, retracted_output_tokens = 0;
  std::uint64_t evicted_tokens = 0;
  std::uint64_t steps = 0;
  std::uint64_t prefill_steps = 0;  // with an extend part
  std::uint64_t graph_steps = 0;    // that replayed a captured graph
  double gpu_seconds = 0;           // of all passes
  double prefill_gpu_seconds = 0;   // of those with an extend part
  std::uint64_t merged_deltas = 0;  // pieces of answers that went out with later ones: a reader was slow

  HttpResponses http_responses;
  HttpActive http_active;

  LiveHistogram ttft{kTtftEdges};
  LiveHistogram inter_token{kInterTokenEdges};
  LiveHistogram e2e{kE2eEdges};
  LiveHistogram queue_time{kQueueTimeEdges};
  LiveHistogram prompt_length{kTokenCountEdges};
  LiveHistogram uncached_prompt_length{kTokenCountEdges};
  LiveHistogram generation_length{kTokenCountEdges};
  LiveHistogram lateness{kLatenessEdges};  // of tokens, in seconds of the wall; none of computed ones

  // The last samples, oldest first: one a second of the wall, at most kMostSamples.
  static constexpr std::size_t kMostSamples = 600;
  std::vector<LiveSample> samples;

  std::vector<LiveStatistics> replicas;  // each of several, without samples
};

}  // namespace tpsim::launch
