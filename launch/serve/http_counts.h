// Answers by route, method and status. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
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
  // A call has begun, or is over, that takes a while.
  void begin(std::string_view route, std::string_view method) {
    const std::lock_guard lock(mutex_);
    ++active_[{route, method}];
  }
  void end(std::string_view route, std::string_view method) {
    const std::lock_guard lock(mutex_);
    --active_[{route, method}];
  }
  std::vector<HttpCount> active() const {
    const std::lock_guard lock(mutex_);
    std::vector<HttpCount> all;
    for (const auto& [key, count] : active_)
      all.push_back({std::string(key.first), std::string(key.second), 0, count});
    return all;
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
  std::map<std::pair<std::string_view, std::string_view>, std::uint64_t> active_;
};

}  // namespace tpsim::launch
