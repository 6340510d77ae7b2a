// A run as a Perfetto trace (--trace-out): what its scheduler, its ranks and its requests did, and when.
//
// One process of the trace is a replica. Its tracks:
//   scheduler         the rounds of its thread: from the forming of a batch until the thread goes on
//   ranks 0 to 7      passes, one track for ranks that do the same; inside, what the pass spends its time on,
//                     summed over its layers, one after the other
//   requests          one slice for each, waiting, prefill, decode and retracted inside it
//   counters          requests, tokens of the KV pool, hit rate, of every pass
// Where there are several, two more:
//   router            its choices, by replica, and the requests that each had then
//   KV transfers      chunks on their way from a replica that prefills to one that decodes; on the former a
//                     request is there until its last one is over
//
// Times are those of the run's clock in whole nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/perfetto/perfetto_writer.h"
#include "rank/parallel/deployment_executor.h"
#include "scheduler/records.h"

namespace tpsim::launch {

// The part of the run's clock that is written, [from, until), seconds: passes that begin in it and requests
// that were there in it.
struct TraceWindow {
  double from = 0;
  double until = std::numeric_limits<double>::infinity();
};

// Where slices that may overlap find a track of their own: as few tracks as are needed at a time, not one for
// each slice.
// Lanes are numbered from 0. Invariant: what a lane is given begins at or after the end of what it had.
class Lanes {
 public:
  // The lane of [begin, end]: of those that are free at `begin` the one that was left last, or a new one,
  // whose number is size() - 1 then. REQUIRES: begin <= end.
  std::size_t take(std::uint64_t begin, std::uint64_t end) {
    auto after = free_from_.upper_bound({begin, SIZE_MAX});
    std::size_t lane = free_from_.size();
    if (after != free_from_.begin()) {
      lane = std::prev(after)->second;
      free_from_.erase(std::prev(after));
    }
    free_from_.emplace(end, lane);
    return lane;
  }
  std::size_t size() const { return free_from_.size(); }

 private:
  std::set<std::pair<std::uint64_t, std::size_t>> free_from_;  // end of its last slice, lane
};

class RunTrace {
 public:
  // What ui.perfetto.dev opens within the 2 GB that browsers give a page: a trace takes two to four times its
  // size there (Perfetto's docs/visualization/large-traces.md).
  static constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20;

  // `file` must outlive it.
  RunTrace(OutputFile& file, const TraceWindow& window, std::uint64_t most_bytes = kMostBytes);

  // The next replica of the run, before its records; `name` is shown. `groups`: of its ranks; none: one
  // track for each of `stages` stages. `scheduled`: whether there is a scheduler, and not only passes.
  void add_replica(const std::string& name, std::uint32_t num_ranks, std::uint32_t stages,
                   std::vector<rank::RankGroup> groups, bool scheduled = true);
  // `seconds`: what each group spent in the pass; empty: not known.
  void add_step(const scheduler::StepRecord& step, std::span<const rank::RankSeconds> seconds);
  void add_request(const scheduler::RequestRecord& request);
  void add_choice(const scheduler::RoutedRecord& routed);
  void add_transfer(const scheduler::KvSentRecord& sent);
  // Hands what is buffered to the file.
  void finish() { writer_.finish(); }

  // Of the run's clock: where the trace ended because it had become too large; infinity where it did not.
  double cut_at() const { return cut_at_; }

 private:
  using Track = PerfettoWriter::Track;
  using Name = PerfettoWriter::Name;
  using Argument = PerfettoWriter::Argument;

  struct Counter {
    Track track = Track::kNone;
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  };
  // Tracks of the ranks of one group.
  struct Group {
    std::uint32_t stage = 0;
    Track track = Track::kNone;
  };
  // Slices that may overlap.
  struct LaneTracks {
    Lanes lanes;
    std::vector<Track> tracks;
  };
  struct ReplicaTracks {
    Track process = Track::kNone;
    Track scheduler = Track::kNone;  // kNone: there is none, and no counters
    std::vector<Group> groups = {};
    LaneTracks requests = {};
    std::array<Counter, 5> counters = {};
    std::array<Counter, 3> swa_counters = {};
    std::array<Counter, 3> state_counters = {};
    Track hit_rate = Track::kNone;
    std::uint64_t prompt_tokens = 0, cached_tokens = 0;
  };
  // Of the router, to one replica.
  struct RouteTracks {
    Track choices = Track::kNone;
    Counter in_flight;
  };

  // Whether nothing more is written; `time`: of the run.
  bool full(double time);
  void add_pass(const Group& group, const scheduler::StepRecord& step, const rank::RankSeconds* seconds);
  void count(Counter& counter, std::uint64_t time, std::uint64_t value);
  void add_counters(ReplicaTracks& of, const scheduler::StepRecord& step, std::uint64_t time);
  // A process beside the replicas.
  Track add_other_process(const char* name);
  // Where [begin, end] of `lanes` is drawn.
  Track lane(LaneTracks& lanes, Track process, std::string_view name, std::int32_t place, std::uint64_t begin,
             std::uint64_t end);
  void add_phases(const scheduler::RequestRecord& request, Track track, std::uint64_t begin,
                  std::uint64_t end);
  void slice(Track track, Name category, Name name, std::uint64_t begin, std::uint64_t end);

  PerfettoWriter writer_;
  const TraceWindow window_;
  const std::uint64_t most_bytes_;
  double cut_at_ = std::numeric_limits<double>::infinity();
  double last_time_ = 0;  // end of the last step, seconds

  std::vector<ReplicaTracks> replicas_;
  std::int32_t processes_ = 0;
  std::vector<RouteTracks> routes_;  // none before the first choice
  Track transfers_ = Track::kNone;   // the process, from the first one on
  std::map<std::pair<std::uint32_t, std::uint32_t>, LaneTracks> links_;
  std::vector<Argument> arguments_;

  // All that the file holds once, in its order.
  struct Names {
    PerfettoWriter& writer;
    // Categories.
    Name step = writer.category("step"), request = writer.category("request"),
         scheduler = writer.category("scheduler");
    // Of several replicas; said when they are needed, so that a trace of one does not hold them.
    Name router() { return writer.category("router"); }
    Name transfers() { return writer.category("transfer"); }
    Name transfer() { return writer.slice_name("transfer"); }
    Name prefill_replica() { return writer.argument_name("prefill_replica"); }
    Name in_flight() { return writer.argument_name("requests_in_flight"); }
    Name least_in_flight() { return writer.argument_name("least_in_flight"); }
    Name tokens() { return writer.argument_name("tokens"); }
    // Slices: parts of a pass, proto::ForwardMode, and phases of a request.
    std::array<Name, 7> parts = each(&PerfettoWriter::slice_name, {"encoder", "attention", "gemm", "other",
                                                                   "launch", "wait", "collective"});
    std::array<Name, 7> modes = mode_names(writer);
    Name waiting = writer.slice_name("waiting"), prefill = writer.slice_name("prefill"),
         decode = writer.slice_name("decode"), retracted = writer.slice_name("retracted");
    // Arguments.
    Name step_number = writer.argument_name("sequence_number"),
         extend_requests = writer.argument_name("extend_requests"),
         extend_tokens = writer.argument_name("extend_tokens"),
         cached_tokens = writer.argument_name("cached_tokens"),
         decode_requests = writer.argument_name("decode_requests"),
         decode_tokens = writer.argument_name("decode_tokens"),
         capture_bucket = writer.argument_name("capture_bucket");
    Name state = writer.argument_name("state"), input_tokens = writer.argument_name("input_tokens"),
         output_tokens = writer.argument_name("output_tokens"), ttft_ms = writer.argument_name("ttft_ms"),
         tpot_ms = writer.argument_name("tpot_ms"), retractions = writer.argument_name("retractions"),
         session = writer.argument_name("session");
    std::array<Name, 4> states =
        each(&PerfettoWriter::argument_word, {"completed", "rejected", "unfinished", "cancelled"});

    template <std::size_t N>
    std::array<Name, N> each(Name (PerfettoWriter::*intern)(std::string_view),
                             const char* const (&texts)[N]) {
      std::array<Name, N> names;
      for (std::size_t i = 0; i < N; ++i) names[i] = (writer.*intern)(texts[i]);
      return names;
    }
    static std::array<Name, 7> mode_names(PerfettoWriter& writer);
  } names_{writer_};
};

}  // namespace tpsim::launch
