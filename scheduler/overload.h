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
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "proto/report.pb.h"
#include "scheduler/records.h"

namespace tpsim::scheduler {

// What a load asks for, were every answer there at once.
struct Offered {
  double rate = 0;                   // requests per second; 0: a closed loop, or all at once
  double last_arrival = 0;           // when the last request comes that waits for no answer; seconds
  double end = 0;                    // when the last of all would come
  std::uint64_t longest_output = 0;  // generated tokens of a request or of a conversation, one after another
};

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
