// When each request of a workload is sent.
//
// Arrivals. Requests without a session, and the first turns of sessions, are sent at their times in the
// trace, or at the rate of LoadConfig::request_rate, as SGLang's serving benchmark offers conversations.
//
// Turns (SessionMode::kClosed). A later turn is sent when the answer before it has ended and the user has
// thought: its think time after that end where the trace names one. A trace that has times only records
// neither answers nor thought, but the distance between two turns holds both: such a turn is sent at that
// distance after the turn before it was sent, or at the end of its answer if that comes later. A user whose
// answer came late does not hurry to catch up with the recording. A turn that is refused has ended.
//
// Places (max_concurrency). A request takes one of the places while it is in flight; places are given in the
// order in which requests became due, as by the semaphore of SGLang's serving benchmark, which also starts a
// request's clock when it is sent. A turn that follows at once (no think time) keeps the place of the turn
// before it: the benchmark, whose users do not think, holds one for a whole conversation.
//
// The workload is read as far as it must be: up to the next arrival, and where an answer has ended up to the
// turn that replies to it. What was read and waits is held, nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/overload.h"
#include "scheduler/request_source.h"
#include "scheduler/workload/sampler.h"
#include "scheduler/workload/streamed_workload.h"

namespace tpsim::scheduler {

// Requests per second that a load asks for: LoadConfig::request_rate (of conversations, times their mean
// number of turns), or that of the trace over the time it spans, however late turns are sent that wait for an
// answer. 0: a closed loop, or all at once.
double offered_rate(const LoadConfig& config, const WorkloadOutline& workload);

class LoadGenerator : public RequestSource {
 public:
  // `workload` must outlive it.
  LoadGenerator(const LoadConfig& config, const StreamedWorkload& workload);

  std::uint64_t size() const override { return outline_.requests; }
  double next_time() const override;
  Sent pop() override;
  void on_finished(std::uint64_t id, double now) override;

  // Requests that reply to an answer: all turns of sessions but the first.
  std::uint64_t turns() const { return outline_.turns; }
  // Its `end` and `longest_output` are those of what was read so far; once next_time() is kNever and nothing
  // is in flight, of all.
  const Offered& offered() const { return offered_; }
  bool exhausted() const { return sent_ == outline_.requests; }

  // State of a checkpoint (proto/base/archive.h). Reads the workload again up to where it was.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(read_, sent_, all_read_, sampler_, next_start_, arrivals_, sessions_, session_of_, due_turns_,
            in_flight_, last_free_, kept_, offered_);
    if constexpr (Archive::kReads) skip_what_was_read();
  }

 private:
  struct Due {
    double time = 0;
    std::uint64_t id = 0;
    RequestPtr request;
    bool operator<(const Due& other) const {
      return time < other.time || (time == other.time && id < other.id);
    }
    bool operator>(const Due& other) const { return other < *this; }

    auto state() { return std::tie(time, id, request); }
  };
  // A turn that replies to an answer, read and not due yet.
  struct Turn {
    std::uint64_t id = 0;
    RequestPtr request;
    double wait = 0;  // seconds after the end of the answer before, or after the sending of that turn
    bool after_answer = false;  // which of the two

    auto state() { return std::tie(id, request, wait, after_answer); }
  };
  // A session that goes on.
  struct Session {
    std::vector<Turn> turns;    // that wait for the answer before them (kClosed)
    double recorded = 0;        // arrival of the turn that was read last, in the trace
    double end = 0;             // Offered: when that turn would come, were every answer there at once
    std::uint64_t output = 0;   // generated tokens of the turns that were read
    std::uint64_t last_id = 0;  // of the turn that was sent last,
    double sent = 0;            // when,
    double finished = kNever;   // and when it came back

    auto state() { return std::tie(turns, recorded, end, output, last_id, sent, finished); }
  };

  // Whether another turn of its session follows request `id`.
  bool followed(std::uint64_t id) const { return !outline_.followed.empty() && outline_.followed[id]; }
  // Reads the next request, if there is one.
  void read();
  void read_to_next_arrival();
  void skip_what_was_read();
  // The earliest that is due, of arrivals and turns; null for none.
  const Due* first_due() const;
  void offer(double end, std::uint64_t output);

  const LoadConfig config_;
  const StreamedWorkload& workload_;
  const WorkloadOutline& outline_;
  RequestReader reader_;
  std::uint64_t read_ = 0, sent_ = 0;
  bool all_read_ = false;
  const bool closed_;
  Sampler sampler_;
  double next_start_ = 0;  // with a request rate

  std::deque<Due> arrivals_;  // read and not sent, ascending; where one is to come, it holds the next
  std::unordered_map<std::uint32_t, Session> sessions_;          // that go on; looked up only
  std::unordered_map<std::uint64_t, std::uint32_t> session_of_;  // of turns in flight that are followed
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_turns_;
  const std::uint32_t places_;  // 0 = no limit
  std::size_t in_flight_ = 0;
  double last_free_ = 0;  // when a place became free last
  std::deque<Due> kept_;  // turns that follow in the place of the turn before them
  Offered offered_;
};

}  // namespace tpsim::scheduler
