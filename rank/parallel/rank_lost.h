// A rank is gone or does not answer: the run cannot go on, but what was finished can be reported.
#pragma once

#include <stdexcept>
#include <string>

namespace tpsim::rank {

// what() is a sentence that names the ranks and their process. tpsim writes its report and exits with 3.
class RankLost : public std::runtime_error {
 public:
  explicit RankLost(const std::string& sentence) : std::runtime_error(sentence) {}
};

}  // namespace tpsim::rank
