#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "scheduler/fleet_run.h"

namespace tpsim::scheduler {

void FleetRun::admit(Flights::Flight& flight, double now) {
  flight.admitted = !admission_ || admission_->take(now);
  if (flight.admitted) {
    attempt(flight, now);
  } else if (const std::optional<Admission::Wait> wait = admission_->wait(flight.first.id, now)) {
    flight.admitted = wait->passes;
    flights_.wait_until(wait->until, flight.first.id);
  } else {
    refuse(flight, now);
  }
}

void FleetRun::refuse(Flights::Flight& flight, double now) {
  admission_->give_up(flight.first.id);
  elastic_->on_refused();
  fail(unserved(flight.first), now);
}

void FleetRun::land(std::uint64_t id, double time) {
  const bool admitted = flights_.at(id).admitted;
  flights_.erase(id);
  if (!admission_ || !admitted) return;
  if (const std::optional<std::uint64_t> next = admission_->give_back(time)) {
    flights_.at(*next).admitted = true;
    flights_.wait_until(time, *next);
  }
}

void FleetRun::attempt(Flights::Flight& flight, double now) {
  RequestSource::Sent sent = flight.first;
  sent.time = now;
  elastic_->look_for_available(now);
  if (!servers_.serves(*sent.request) || (decoders_ && !decoders_->serves(*sent.request))) {
    try_again(flight, now);
    return;
  }
  flight.replica = servers_.choose(sent);
  if (!elastic_->alive(flight.replica)) {
    elastic_->on_failure(flight.replica, now);
    try_again(flight, now);
    return;
  }
  hand_over(sent, flight.replica);
}

void FleetRun::try_again(Flights::Flight& flight, double now) {
  if (const std::optional<double> pause = elastic_->backoff(++flight.failed)) {
    flights_.wait_until(now + *pause, flight.first.id);
  } else {
    lose(unserved(flight.first), now, /*begun=*/false);
  }
}

void FleetRun::lose(const Req& req, double time, bool begun) {
  elastic_->on_lost(begun);
  if (begun) elastic_->on_answer(flights_.at(req.id).replica, time, std::numeric_limits<double>::infinity());
  fail(req, time);
}

void FleetRun::fail(const Req& req, double time) {
  const Flights::Flight& flight = flights_.at(req.id);
  // Of pairs, one that reached no server; the decode server is named.
  RequestRecord record = record_of(req, RequestState::kFailed, time, pairs_ ? servers_.size : flight.replica);
  record.arrival_time = flight.first.time;
  land(req.id, time);
  recorder_.on_finished(record);
  source_->on_finished(req.id, time);
}

void FleetRun::on_death(std::uint32_t worker, double time) {
  const double now = std::max(time, replica(worker).now());
  for (const Req* req : replica(worker).schedulers().unfinished())
    if (req->first_token_time > 0 && req->first_token_time <= now) lose(*req, now, /*begun=*/true);
  const std::vector<std::uint64_t> unanswered = flights_.with(worker);
  in_flight_.clear(worker);
  begin_anew(worker);
  for (const std::uint64_t id : unanswered) {
    elastic_->on_failure(worker, now);
    try_again(flights_.at(id), now);
  }
}

void FleetRun::begin_anew(std::uint32_t worker) {
  recorder_.retire(worker, replica(worker));
  workers_[worker]->executor->restart();
  workers_[worker]->begin_anew();
  look_again(worker);
}

double FleetRun::metric(std::uint32_t worker, AutoscaleMetric metric) const {
  if (metric == AutoscaleMetric::kQueue) return static_cast<double>(in_flight_.requests()[worker]);
  return workers_[worker]->replica->schedulers().totals().pools[kvcache::kKvPool].usage();
}

}  // namespace tpsim::scheduler
