// What a run tells its observer: one record per finished request and one per step.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "kvcache/pools/pool.h"
#include "proto/base/archive.h"
#include "proto/forward.pb.h"

namespace tpsim::scheduler {

enum class RequestState : std::uint8_t {
  kCompleted,
  kRejected,    // longer than the context or than the pool
  kUnfinished,  // the run stopped early
  kCancelled,   // its client wanted no more of it
  kFailed       // its replica died, or none could be reached (scheduler/elastic)
};

// A time in which a request had given its pages back; seconds of the run's clock.
struct Interruption {
  double retracted = 0;
  double readmitted = 0;  // 0: not again
};

// Times in seconds of the run's clock, since its start.
struct RequestRecord {
  std::uint64_t id = 0;  // position in the workload, from 0
  RequestState state = RequestState::kUnfinished;
  std::uint16_t model = 0;                            // WorkloadRequest::model
  std::uint32_t replica = 0;                          // that served it
  std::optional<std::uint32_t> prefill_replica = {};  // where another one prefilled it
  std::uint32_t session = 0;
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t cached_tokens = 0;   // prompt tokens found in the radix pool at first admission
  std::uint32_t cached_host = 0;     // of them, loaded from host memory …
  std::uint32_t cached_storage = 0;  // … and read from storage before
  std::uint32_t retractions = 0;
  std::uint32_t images = 0;        // of its prompt
  std::uint32_t image_tokens = 0;  // prompt tokens that stand for them
  double arrival_time = 0;
  double first_scheduled_time = 0;  // start of its first prefill
  double first_token_time = 0;
  double finish_time = 0;
  // One for each retraction or preemption; valid during the call.
  std::span<const Interruption> interruptions;
  // Numeric execution only; valid during the call.
  std::span<const std::uint32_t> output_ids;
  std::span<const float> prompt_logits;  // [vocabulary], at the last prompt token; where asked for

  // Of a completed request; seconds, as SGLang's serving benchmark defines them.
  double ttft() const { return first_token_time - arrival_time; }
  double e2e_latency() const { return finish_time - arrival_time; }
  // 0 where there is no token after the first.
  double tpot() const { return output_tokens > 1 ? (e2e_latency() - ttft()) / (output_tokens - 1) : 0; }
};

// What a user expects of every request, the --goodput of vLLM's serving benchmark: the longest that is good,
// milliseconds; empty: any.
struct ServiceLevels {
  std::optional<double> ttft_ms{};
  std::optional<double> tpot_ms{};
  std::optional<double> e2e_ms{};

  bool any() const { return ttft_ms || tpot_ms || e2e_ms; }

  // The largest share of a level that a completed request needed: at most 1 where it is within all of them.
  double needed_by(const RequestRecord& record) const {
    const auto needs = [](double seconds, const std::optional<double>& ms) {
      return ms ? seconds * 1e3 / *ms : 0;
    };
    return std::max(
        {needs(record.ttft(), ttft_ms), needs(record.tpot(), tpot_ms), needs(record.e2e_latency(), e2e_ms)});
  }

  // Whether a request was completed and within every level. A single token has no time per output token and
  // is within any.
  bool met_by(const RequestRecord& record) const {
    const auto within = [](double seconds, const std::optional<double>& ms) {
      return !ms || seconds * 1e3 <= *ms;
    };
    return record.state == RequestState::kCompleted && within(record.ttft(), ttft_ms) &&
           within(record.tpot(), tpot_ms) && within(record.e2e_latency(), e2e_ms);
  }
};

// What one pipeline stage did in a pass; seconds of the run's clock.
struct StageTimes {
  double start = 0;  // first kernel
  double end = 0;    // last one
  double sent = 0;   // to the next stage, of the last one: the tokens to the first
};

// What is in a pool, in its units; all 0 where there is no such pool.
struct PoolUse {
  std::uint64_t held = 0;    // by running requests, or locked by them
  std::uint64_t cached = 0;  // evictable
  std::uint64_t free = 0;

  std::uint64_t capacity() const { return held + cached + free; }
  // SGLang's token_usage.
  double usage() const {
    return capacity() > 0 ? static_cast<double>(held) / static_cast<double>(capacity()) : 0;
  }
};
using PoolUses = std::array<PoolUse, kvcache::kPools>;  // by kvcache::Pool

struct StepRecord {
  std::uint64_t sequence_number = 0;  // of its replica
  std::uint32_t replica = 0;
  proto::ForwardMode forward_mode = proto::IDLE;
  double start_time = 0;     // of its first kernel
  double step_time = 0;      // until its tokens are there; passes of several pipeline stages overlap
  double formed_time = 0;    // when the scheduler's thread had chosen the batch …
  double returned_time = 0;  // … and when it went on, everything issued
  std::span<const StageTimes> stages;  // of several pipeline stages; valid during the call
  std::uint32_t extend_requests = 0;
  std::uint32_t extend_tokens = 0;
  std::uint32_t cached_tokens = 0;  // prefix tokens reused by requests admitted in this step
  std::uint32_t decode_requests = 0;
  std::uint32_t decode_tokens = 0;   // that they get: one each, or what speculation accepted
  std::uint32_t capture_bucket = 0;  // 0 = eager
  std::uint32_t waiting = 0;         // after the batch was formed
  std::uint32_t running = 0;
  PoolUses pools;
};

// What the router of several replicas did with a request.
struct RoutedRecord {
  std::uint64_t id = 0;
  double time = 0;                                   // seconds of the run's clock
  std::uint32_t replica = 0;                         // where it went …
  std::optional<std::uint32_t> decode_replica = {};  // … and where it goes on, if elsewhere
  // Requests that each replica had before it; valid during the call.
  std::span<const std::uint64_t> in_flight;
};

// KV of a chunk of a request's prompt, from the replica that prefills it to the one that decodes. Times in
// seconds of the run's clock.
struct KvSentRecord {
  std::uint64_t id = 0;
  std::uint32_t from = 0, to = 0;  // replicas
  double begin = 0;                // handed over to the link
  double end = 0;                  // the last byte is there
  std::uint32_t tokens = 0;
  bool last = false;                                  // of the prompt
  double arrival_time = 0, first_scheduled_time = 0;  // of the request, at the replica that prefills it
};

// A point of the run as a progress bar shows it.
struct Progress {
  double time = 0;             // seconds of the run's clock
  std::uint64_t finished = 0;  // requests completed or rejected
  std::uint64_t total = 0;
  std::uint64_t steps = 0;
};

// Adds up the passes of one replica, by whoever runs it: a thread, or another process, where one like it
// writes what this one, of the process that records the run, reads.
class StepTally {
 public:
  virtual ~StepTally() = default;
  virtual void on_step(const StepRecord& record) = 0;
  virtual void write(StateWriter& out) = 0;
  virtual void read(StateReader& in) = 0;
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_request(const RequestRecord& record) = 0;
  // Where wants_steps(), of every replica in the order of the run.
  virtual void on_step(const StepRecord& record) = 0;
  virtual bool wants_steps() const { return true; }
  // Of a replica; null: none is wanted. Valid as long as the observer.
  virtual StepTally* tally_of(std::uint32_t /*replica*/) { return nullptr; }
  // Of several replicas.
  virtual void on_routed(const RoutedRecord&) {}
  virtual void on_kv_sent(const KvSentRecord&) {}
  // Called every few dozen steps. Returning false stops the run early.
  virtual bool on_progress(const Progress& progress) = 0;
};

// Keeps nothing.
class NoRecords : public RunObserver {
 public:
  void on_request(const RequestRecord&) override {}
  void on_step(const StepRecord&) override {}
  bool wants_steps() const override { return false; }
  bool on_progress(const Progress&) override { return true; }
};

}  // namespace tpsim::scheduler
