#include "launch/serve/stop_strings.h"

#include <algorithm>
#include <utility>

namespace tpsim::launch {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::optional<StopStrings::Match> StopStrings::push(std::string_view piece) {
  if (longest_ == 0) return std::nullopt;
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  tail_ += piece;
  std::size_t first = std::string::npos;
  std::string_view which;
  for (const std::string& stop : stops_) {
    const std::size_t at = tail_.find(stop);
    if (at < first) {
      first = at;
      which = stop;
    }
  }
  if (first == std::string::npos) return std::nullopt;
  return Match{which, tail_.size() - first};
}

bool StopStrings::may_begin() const {
  const std::string_view tail = tail_;
  return std::any_of(stops_.begin(), stops_.end(), [tail](std::string_view stop) {
    for (std::size_t size = std::min(stop.size() - 1, tail.size()); size > 0; --size) {
      if (tail.ends_with(stop.substr(0, size))) return true;
    }
    return false;
  });
}

}  // namespace tpsim::launch
