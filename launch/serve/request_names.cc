#include "launch/serve/request_names.h"

#include <fmt/format.h>

#include <random>

namespace tpsim::launch {

bool RequestNames::reserve(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return ids_.emplace(name, kNotSubmitted).second;
}

void RequestNames::set(const std::string& name, std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  ids_.insert_or_assign(name, id);
}

void RequestNames::erase(const std::string& name) {
  const std::lock_guard lock(mutex_);
  ids_.erase(name);
}

bool RequestNames::contains(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return ids_.find(name) != ids_.end();
}

std::vector<std::uint64_t> RequestNames::starting_with(std::string_view prefix) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> ids;
  for (auto at = ids_.lower_bound(prefix); at != ids_.end() && at->first.starts_with(prefix); ++at) {
    if (at->second != kNotSubmitted) ids.push_back(at->second);
  }
  return ids;
}

std::string RequestNames::invent() {
  thread_local std::mt19937_64 random{(std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

}  // namespace tpsim::launch
