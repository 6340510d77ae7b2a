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
// before it: the benchmark, whose users do not think, holds one for a whole conversation. A place is free
// when the client has seen the end of its answer, of which on_finished() may tell earlier.
//
// The workload is read as far as it must be: up to the next arrival, and where an answer has ended up to the
// turn that replies to it. What was read and waits is held, nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/records.h"
#include "scheduler/request_source.h"
#include "scheduler/workload/sampler.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// What a load asks for, were every answer there at once.
struct Offered {
  double rate = 0;                   // requests per second; 0: a closed loop, or all at once
  double last_arrival = 0;           // when the last request comes that waits for no answer; seconds
  double end = 0;                    // when the last of all would come
  std::uint64_t longest_output = 0;  // generated tokens of a request or of a conversation, one after another
};

// Requests per second that a load asks for: LoadConfig::request_rate (of conversations, times their mean
// number of turns), or that of the trace over the time it spans, however late turns are sent that wait for an
// answer. 0: a closed loop, or all at once.
double offered_rate(const LoadConfig& config, const WorkloadOutline& workload);

// Whether nothing that servers do decides which request comes next, or which servers there are: no request
// waits for an answer, and no server dies, comes or goes.
bool comes_by_itself(const LoadConfig& config, const WorkloadOutline& workload);

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
            taken_, freed_, kept_, offered_);
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
  std::size_t taken_ = 0;       // places that a request ever had
  std::deque<double> freed_;    // when those of them that are free became so, ascending
  std::deque<Due> kept_;        // turns that follow in the place of the turn before them
  Offered offered_;
};

// Whether a load can be served at all, or the queue grows for as long as requests come. Only of a load that
// comes by itself (Offered::rate), and only while it comes.
//
// A queue grows without end where requests in flight become more throughout: their mean over the second,
// third and last quarter of the arrivals rises, by as much each time within a factor of four (a burst at the
// end raises the last only; what fills the batches at the start levels off), and either
//   - of the n requests that came, more than 2 sqrt(n) still wait for their first prefill at the end (a
//     server that keeps up just so has about sqrt(n) by the chance of Poisson arrivals), or
//   - what is in flight then takes longer to work off than it took to come, beyond the time that the longest
//     request or conversation takes by itself. Where a request takes w + n / x among n others, w alone, those
//     that came in time t at rate r are done after w + t r / x: later than w + t only if r exceeds x, the
//     most that can be served.
// Both miss what is too little or too short to tell from chance.
class OverloadWatch {
 public:
  // Of a load with this rate and last arrival (Offered).
  OverloadWatch(double rate, double last_arrival) : rate_(rate), last_arrival_(last_arrival) {}

  void on_request(const RequestRecord& record);
  // After the run and its other figures: sets `overload` where there is one.
  void write(const Offered& offered, proto::RunReport& report) const;

  auto state() { return std::tie(in_flight_, arrived_, left_waiting_, last_finish_, shortest_tpot_); }

 private:
  bool in_flight_grows() const;
  bool many_left_waiting() const;
  bool long_to_work_off(const Offered& offered) const;

  static constexpr int kQuarters = 4;

  const double rate_, last_arrival_;
  std::array<double, kQuarters> in_flight_{};  // request-seconds in each quarter of the arrivals
  std::uint64_t arrived_ = 0;                  // by the last arrival
  std::uint64_t left_waiting_ = 0;             // of them, not yet scheduled then
  double last_finish_ = 0;
  double shortest_tpot_ = 0;  // of any request, as if it had been alone; 0: none yet
};

}  // namespace tpsim::scheduler
