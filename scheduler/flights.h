// Requests between their clients and replicas that may die.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "scheduler/request_source.h"

namespace tpsim::scheduler {

// Each is with a replica, or waits: to be let through, or to be tried again.
class Flights {
 public:
  struct Flight {
    RequestSource::Sent first;  // as its client sent it
    std::uint32_t replica = 0;  // tried last
    std::uint32_t failed = 0;   // attempts
    bool waits = false;
    bool admitted = false;                                      // by the router's limits, or there are none
    std::multimap<double, std::uint64_t>::iterator place = {};  // where it waits
  };

  Flight& add(const RequestSource::Sent& sent) { return flights_[sent.id] = {.first = sent}; }
  // REQUIRES: it was added and not erased.
  Flight& at(std::uint64_t id) { return flights_.at(id); }
  void erase(std::uint64_t id) { flights_.erase(id); }

  void wait_until(double time, std::uint64_t id) {
    Flight& flight = at(id);
    if (flight.waits) waiting_.erase(flight.place);
    flight.waits = true;
    flight.place = waiting_.emplace(time, id);
  }
  // When one is tried again; RequestSource::kNever where none waits.
  double next_time() const { return waiting_.empty() ? RequestSource::kNever : waiting_.begin()->first; }
  // That one, which waits no more. REQUIRES: next_time() is not kNever.
  Flight& pop() {
    Flight& flight = at(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    flight.waits = false;
    return flight;
  }
  // Those that are with `replica`, ascending by their numbers.
  std::vector<std::uint64_t> with(std::uint32_t replica) const {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, flight] : flights_)
      if (flight.replica == replica && !flight.waits) ids.push_back(id);
    std::ranges::sort(ids);
    return ids;
  }

 private:
  std::unordered_map<std::uint64_t, Flight> flights_;
  std::multimap<double, std::uint64_t> waiting_;  // equal times in the order of their coming
};

}  // namespace tpsim::scheduler
