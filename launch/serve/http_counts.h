// Answers by route, method and status. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "launch/serve/live_statistics.h"

namespace tpsim::launch {

class HttpCounts {
 public:
  // Views of constants.
  void add(std::string_view route, std::string_view method, unsigned status) {
    const std::lock_guard lock(mutex_);
    ++counts_[{route, method, status}];
  }
  std::vector<HttpCount> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<HttpCount> all;
    for (const auto& [key, count] : counts_) {
      const auto& [route, method, status] = key;
      all.push_back({std::string(route), std::string(method), status, count});
    }
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string_view, std::string_view, unsigned>, std::uint64_t> counts_;
};

}  // namespace tpsim::launch
