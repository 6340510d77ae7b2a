// Everything the scheduler has to be told: resolved options, no defaults left to guess.
// launch/ fills it from the command line with the defaults that SGLang would choose.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcache/pools/pool.h"
#include "scheduler/disaggregation/config.h"
#include "scheduler/elastic/config.h"
#include "scheduler/hicache/hicache_config.h"
#include "scheduler/prefill_delayer.h"
#include "scheduler/records.h"
#include "scheduler/releases/sglang_release.h"
#include "scheduler/router/router.h"
#include "scheduler/speculation.h"

namespace tpsim::scheduler {

// SGLang's --schedule-policy.
enum class SchedulePolicy : std::uint8_t { kLpm, kDfsWeight, kFcfs, kLof, kRandom };

// SGLang's --retraction-policy: which decoding request gives way first where the pool is full.
enum class RetractionPolicy : std::uint8_t { kLength, kPriority };

// SGLang's priority scheduling, of requests that have a priority.
struct PriorityConfig {
  bool enable_scheduling = false;
  bool disable_preemption = false;
  bool low_values_first = false;
  bool abort_when_disabled = false;           // a request with a priority is refused where it has no meaning
  std::int32_t preemption_threshold = 10;     // a larger difference preempts
  std::optional<std::int32_t> default_value;  // of requests without one
};

// SGLang's --load-balance-method: which data-parallel rank a request is dispatched to.
enum class LoadBalanceMethod : std::uint8_t {
  kRoundRobin,
  kTotalRequests,
  kTotalTokens,
  kFollowBootstrapRoom  // of servers that prefill: drawn for each request
};

// SGLang's --dp-size with --enable-dp-attention.
struct DataParallelConfig {
  std::uint32_t size = 1;
  LoadBalanceMethod load_balance = LoadBalanceMethod::kRoundRobin;
  // Some layer runs on the tokens of all ranks, so all replay graphs of one size (require_mlp_tp_gather).
  bool gathers_mlp = true;
};

// The pool of states of gated delta-net layers, where the radix pool keeps some (scheduler/request_states.h).
struct StateConfig {
  std::uint32_t slots = 0;             // states; 0: without such a pool
  std::uint32_t tracking_slots = 0;    // of a request beside its own: 2 or 1 (extra_buffer) or 0 (no_buffer)
  std::uint32_t chunk = 64;            // tokens: snapshots of an extend are whole chunks after its prefix
  std::uint32_t track_interval = 256;  // tokens: of decode passes, at its multiples; a multiple of `chunk`
  // The host reads which snapshot the radix cache takes over on a stream that stands behind the pass launched
  // meanwhile (Replica::step_overlap()).
  bool read_behind_next_pass = false;
};

// SGLang's --pp-size: stages that each have some of the layers. Micro-batches take turns, so that every stage
// has one to work on; each has a running batch of its own (managers/scheduler_pp_mixin.py).
struct PipelineConfig {
  std::uint32_t size = 1;
  std::uint32_t async_batch_depth = 0;                // micro-batches beyond one a stage
  std::optional<std::uint32_t> max_micro_batch_size;  // requests; none: max_running_requests / size

  bool staged() const { return size > 1; }
  std::uint32_t requests_of_micro_batch(std::uint32_t max_running_requests) const {
    return max_micro_batch_size.value_or(std::max(max_running_requests / size, 1U));
  }
  // SGLang's pp_loop_size.
  std::uint32_t micro_batches() const { return staged() ? size + async_batch_depth : 1; }
};

struct SchedulerConfig {
  SglangRelease sglang_release = default_release();
  std::uint32_t page_size = 1;             // tokens; 1, 16, 32, 64 or 128
  std::uint64_t max_total_num_tokens = 0;  // KV pool, a multiple of page_size
  // Sliding-window layers with a pool of their own (SGLang's hybrid SWA memory); 0: without one. The window
  // in tokens as SGLang's sliding_window_size, and the pool's capacity, a multiple of page_size.
  std::uint32_t sliding_window_size = 0;
  std::uint64_t swa_max_total_num_tokens = 0;
  StateConfig states;
  HiCacheConfig hicache;
  std::uint32_t max_running_requests = 0;
  std::uint32_t max_prefill_tokens = 16384;  // input tokens of one prefill batch
  std::uint32_t chunked_prefill_size = 0;    // tokens of one chunk; 0 = no chunked prefill
  bool enable_mixed_chunk = false;
  SchedulePolicy schedule_policy = SchedulePolicy::kFcfs;
  double schedule_conservativeness = 1.0;
  PriorityConfig priority;
  RetractionPolicy retraction_policy = RetractionPolicy::kLength;
  bool disable_radix_cache = false;
  kvcache::EvictionPolicy radix_eviction_policy = kvcache::EvictionPolicy::kLru;
  bool disable_overlap_schedule = false;
  // SGLang's --scheduler-recv-interval: decode passes from one look at what has come to the next; a pass that
  // prefills is always followed by one (managers/scheduler_recv_skipper.py of 0.5.9).
  std::uint32_t recv_interval = 1;
  std::uint32_t context_length = 0;          // tokens of prompt and output together
  std::vector<std::uint32_t> cuda_graph_bs;  // captured batch sizes, ascending; empty = no graphs
  std::uint64_t random_seed = 1;
  double scheduler_step_seconds = 0;  // host work of one step, overlapped unless disabled
  // Of a step that only decodes: what it takes whatever its requests, and each of them.
  double decode_step_seconds = 0;
  double decode_request_seconds = 0;
  // More of it where the step prefills; serial_extend_seconds holds it, too.
  double forming_extend_seconds = 0;
  // Host time between two passes that overlap does not hide, of a pass and of each request that decodes in
  // it.
  double pass_gap_seconds = 0;
  double pass_gap_request_seconds = 0;
  double serial_extend_seconds = 0;  // host time of a pass that prefills, where disable_overlap_schedule
  // What the server compiles when it first meets a prefill of several requests, one of a whole chunk, and a
  // captured decode batch of several; host time in front of the pass.
  double compile_batch_seconds = 0;
  double compile_chunk_seconds = 0;
  double compile_decode_seconds = 0;
  double launch_queue = 0;  // launches that wait on the device before the host does; 0: any number
  SpeculationConfig speculation;
  PrefillDelayerConfig prefill_delayer;
  DataParallelConfig data_parallel;  // the other options are those of one rank
  PipelineConfig pipeline;
  DisaggregationConfig disaggregation;
  bool send_tokens = false;  // batches carry the tokens of their extend part (numeric execution, recordings)
  std::vector<std::uint32_t> eos_token_ids;  // end a request whose sampling does not ignore them
  bool check_invariants = false;             // allocated + free + cached = pool, after every step
  // Steps of the same requests that decode are noted together (scheduler/steady_decode.h), with the same
  // result as one by one; false: one by one, for comparisons.
  bool defers_steady_decode = true;

  // The size of the graph that decodes so many requests; 0: none does.
  std::uint32_t capture_bucket(std::size_t requests) const {
    const auto size = std::lower_bound(cuda_graph_bs.begin(), cuda_graph_bs.end(), requests);
    return size == cuda_graph_bs.end() ? 0 : *size;
  }
};

// When the later turns of a session are sent.
enum class SessionMode : std::uint8_t {
  kClosed,     // after the answer before them and the time of thought
  kTimestamps  // as arrivals, whether the answer is there or not
};

// Seconds between a client and the scheduler (scheduler/front_end.h).
struct FrontEndConfig {
  double client_seconds = 0;  // of each request, before it is sent
  double client_token_seconds = 0;
  double pass_seconds = 0;
  double request_seconds = 0;
  double token_seconds = 0;
  double stream_seconds = 0;
  double copy_seconds = 0;  // of a token that an answer has when it gets another
  double response_seconds = 0;
  double dispatch_seconds = 0;
  double connect_seconds = 0;
  bool prepares_images = false;  // the seconds that requests name for their images count, too
  // Requests come by a socket, which the scheduler's thread reads when it has launched a pass. Otherwise they
  // are seen when the pass is formed, however long its launch takes.
  bool by_socket = false;
  std::uint32_t connections = UINT32_MAX;  // open when the run begins
  std::uint32_t workers = 1;               // SGLang's --tokenizer-worker-num
  // SGLang's --stream-interval: tokens of an answer that go to its client together. The first and the end of
  // an answer are sent at once, so that it only spares `stream_seconds`.
  std::uint32_t stream_interval = 1;
};

// The client's part of a front end. The times of FrontEndConfig were fitted to what clients in Python saw,
// from the stamp before they ask to the stamp when a token is with them. So part of `pass_seconds` is theirs:
// writing JSON, opening a connection, until the first bytes of the request are at the server; and part of
// `response_seconds`: from the server's write until the token was read. A client that really runs, in front
// of `tpsim serve`, needs it itself.
// Seconds.
struct ClientShare {
  double asking = 0;   // of FrontEndConfig::pass_seconds
  double reading = 0;  // of FrontEndConfig::response_seconds
  constexpr double seconds() const { return asking + reading; }
};

// `fitted`, of which `share` is its client's, with one that takes `seconds` for the same; 0: as seen from the
// server's socket. REQUIRES: share.seconds() > 0.
constexpr FrontEndConfig with_client(FrontEndConfig fitted, const ClientShare& share, double seconds) {
  const double more = seconds / share.seconds() - 1;
  fitted.pass_seconds += share.asking * more;
  fitted.response_seconds += share.reading * more;
  return fitted;
}

// How requests are offered (the names are those of SGLang's serving benchmark).
struct LoadConfig {
  SessionMode session_mode = SessionMode::kClosed;
  double time_scale = 1.0;  // arrival and think times are multiplied by this; 0.5 = twice as fast
  // Replaces the arrival times (kClosed: of first turns): per second, Poisson, or evenly spaced with
  // fixed_interval. Infinity: all at once.
  std::optional<double> request_rate;
  bool fixed_interval = false;
  // Closed loop: at most this many in flight; the next is sent when one completes. 0 = open loop.
  std::uint32_t max_concurrency = 0;
  ServiceLevels goodput;   // what is expected of each request; decides nothing but the report
  std::uint64_t seed = 1;  // of Poisson arrivals
  // Served before the run begins: what earlier runs asked, as far as prompts begin as theirs did (tokens of
  // each prompt, in order; further ones are new), and copies of the first request, of at most 32 output
  // tokens. They leave their prefixes in the cache, unless flush_cache, and are in no record and no figure of
  // the scheduler.
  std::vector<std::uint32_t> prompts_before;
  std::uint32_t warmup_requests = 0;
  bool flush_cache = false;  // the run begins with an empty cache
  FrontEndConfig front_end;  // of each replica
  RouterConfig router;       // where there are several; of prefill servers, where these are apart
  RouterConfig decode_router;
  ElasticConfig elastic;  // of several servers, none of which only prefills
};

}  // namespace tpsim::scheduler
