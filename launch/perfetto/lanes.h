// Where slices that may overlap find a track of their own: as few tracks as are needed at a time, not one for
// each slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

namespace tpsim::launch {

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

}  // namespace tpsim::launch
