// The requests that are open under the names that clients know them by (SGLang's rid). Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

class RequestNames {
 public:
  // Makes `name` stand for a request that is not submitted yet. False: it stands for another one.
  bool reserve(const std::string& name);
  // Submitted, as the replica's number `id`.
  void set(const std::string& name, std::uint64_t id);
  void erase(const std::string& name);
  bool contains(const std::string& name) const;
  // The numbers of all whose names begin with `prefix`; of all, if it is empty.
  std::vector<std::uint64_t> starting_with(std::string_view prefix) const;
  // A name that nobody else has: 32 hexadecimal digits.
  static std::string invent();

 private:
  static constexpr std::uint64_t kNotSubmitted = ~std::uint64_t{0};

  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t, std::less<>> ids_;
};

}  // namespace tpsim::launch
