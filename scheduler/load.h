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
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/overload.h"
#include "scheduler/request_source.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Requests of a workload, that must outlive whoever gets one. A request's id is its position in it.
class LoadGenerator : public RequestSource {
 public:
  LoadGenerator(const LoadConfig& config, const Workload& workload);

  std::uint64_t size() const override { return size_; }
  // Requests that reply to an answer: all turns of sessions but the first.
  std::size_t turns() const { return num_turns_; }
  bool exhausted() const { return sent_ == size_; }
  // The rate is LoadConfig::request_rate (of conversations, times their mean number of turns), or that of the
  // trace over the time it spans, however late turns are sent that wait for an answer.
  const Offered& offered() const { return offered_; }
  double next_time() const override;
  Sent pop() override;
  void on_finished(std::uint64_t id, double now) override;

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  struct Due {
    double time;
    std::uint32_t index;
    friend auto operator<=>(const Due&, const Due&) = default;
  };
  // A request as a turn of its session.
  struct Turn {
    std::uint32_t previous = kNone;
    std::uint32_t next = kNone;
    double wait = 0;  // seconds after the end of the answer before, or after the sending of that turn
    bool after_answer = false;  // which of the two
    double sent = kNever;
    double finished = kNever;
  };

  void link_turns(const LoadConfig& config, const Workload& workload);
  Offered offered_by(const LoadConfig& config, const Workload& workload) const;
  bool starts_alone(std::size_t index) const {
    return !closed_ || turns_.empty() || turns_[index].previous == kNone;
  }
  // The earliest that is due, of arrivals and turns; time kNever for none.
  Due first_due() const;

  const Workload* workload_;
  std::size_t size_;
  std::size_t sent_ = 0;
  std::size_t num_turns_ = 0;
  bool closed_;
  std::vector<Due> arrivals_;  // ascending
  std::size_t next_arrival_ = 0;
  std::vector<Turn> turns_;  // by request; empty where no session has a second turn
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_turns_;
  std::uint32_t places_;  // 0 = no limit
  std::size_t in_flight_ = 0;
  double last_free_ = 0;  // when a place became free last
  Offered offered_;
  std::deque<Due> kept_;  // turns that follow in the place of the turn before them
};

}  // namespace tpsim::scheduler
