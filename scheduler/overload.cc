#include "scheduler/overload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tpsim::scheduler {

void OverloadWatch::on_request(const RequestRecord& record) {
  if (rate_ == 0 || record.state != RequestState::kCompleted) return;
  const double quarter = last_arrival_ / kQuarters;
  for (std::size_t i = 0; i < kQuarters; ++i) {
    const double start = static_cast<double>(i) * quarter;
    const double from = std::max(record.arrival_time, start);
    const double to = std::min(record.finish_time, start + quarter);
    in_flight_[i] += std::max(0.0, to - from);
  }
  if (record.arrival_time <= last_arrival_) {
    ++arrived_;
    left_waiting_ += record.first_scheduled_time > last_arrival_ ? 1 : 0;
  }
  last_finish_ = std::max(last_finish_, record.finish_time);
  const double tpot = record.tpot();
  if (tpot > 0 && (shortest_tpot_ == 0 || tpot < shortest_tpot_)) shortest_tpot_ = tpot;
}

bool OverloadWatch::in_flight_grows() const {
  constexpr double kAlike = 4;
  const double earlier = in_flight_[2] - in_flight_[1];
  const double later = in_flight_[3] - in_flight_[2];
  return earlier > 0 && later > 0 && earlier * kAlike >= later && later * kAlike >= earlier;
}

bool OverloadWatch::many_left_waiting() const {
  return static_cast<double>(left_waiting_) > 2 * std::sqrt(static_cast<double>(arrived_));
}

bool OverloadWatch::long_to_work_off(const Offered& offered) const {
  const double alone = offered.end + static_cast<double>(offered.longest_output) * shortest_tpot_;
  return last_finish_ - alone > last_arrival_;
}

void OverloadWatch::write(const Offered& offered, proto::RunReport& report) const {
  if (rate_ <= report.request_throughput() || !in_flight_grows()) return;
  if (!many_left_waiting() && !long_to_work_off(offered)) return;
  proto::Overload& overload = *report.mutable_overload();
  overload.set_offered_rate(rate_);
  overload.set_served_rate(report.request_throughput());
  overload.set_message(fmt::format("offered {:.2f} requests/s, served {:.2f}: the queue grows without end",
                                   overload.offered_rate(), overload.served_rate()));
}

}  // namespace tpsim::scheduler
