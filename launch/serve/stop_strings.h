// Finds where an answer ends by one of its stop strings, as its text comes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);

  struct Match {
    std::string_view stop;
    std::size_t bytes_from_start;  // of the text so far, from where the stop string begins to its end
  };
  // The next piece of the text. At the first stop string that is whole (the one that begins first), says so;
  // no further call after it. Nothing for an empty list.
  std::optional<Match> push(std::string_view piece);
  // The last `bytes` bytes of the text, as many as a match reaches back at most.
  std::string_view last(std::size_t bytes) const {
    return std::string_view(tail_).substr(tail_.size() - bytes);
  }
  // Whether the end of the text may be the beginning of a stop string.
  bool may_begin() const;

 private:
  const std::vector<std::string> stops_;
  std::size_t longest_ = 0;
  std::string tail_;  // what may still be part of a match, and the last piece
};

}  // namespace tpsim::launch
