#include "rank/weights/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> number_in(const std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ec != std::errc()) return std::nullopt;
  return value;
}

// A file with one number; nothing for "max" or where there is no file.
std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return number_in(text);
}

// The sum of the lines "key value" whose key is one of two.
std::uint64_t read_sum(const std::string& path, std::string_view a, std::string_view b) {
  std::ifstream file(path);
  std::uint64_t sum = 0;
  std::string key, value;
  while (file >> key >> value) {
    if (key == a || key == b) sum += number_in(value).value_or(0);
  }
  return sum;
}

// Where a version of control groups keeps its numbers.
struct Layout {
  std::string mount;
  std::string limit, usage;
  std::string_view inactive, active;  // page cache in memory.stat, descendants included
};

std::uint64_t left_in(const std::string& group, const Layout& layout) {
  const auto limit = read_number(group + layout.limit);
  const auto usage = read_number(group + layout.usage);
  if (!limit || !usage) return kUnlimited;
  const std::uint64_t cache = read_sum(group + "/memory.stat", layout.inactive, layout.active);
  const std::uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

// The least that a group on the way from `path` up to the root leaves. In a container the path may be the
// host's, which is not there; the root of the mount is then the container's own group.
std::uint64_t left_along(std::string path, const Layout& layout) {
  std::uint64_t left = kUnlimited;
  while (true) {
    while (path.ends_with('/')) path.pop_back();
    left = std::min(left, left_in(layout.mount + path, layout));
    if (path.empty()) return left;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

std::uint64_t left_in_groups(const std::string& root) {
  const Layout version1{root + "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                        "total_inactive_file", "total_active_file"};
  const Layout version2{root + "/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file",
                        "active_file"};
  std::uint64_t left = kUnlimited;
  // Lines are "number:controllers:path"; version 2's has no controllers.
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") left = std::min(left, left_along(path, version2));
    if (controllers.find(",memory,") != std::string::npos) left = std::min(left, left_along(path, version1));
  }
  return left;
}

std::string in_gib(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / 0x1p30);
}

}  // namespace

std::uint64_t host_memory_available(const std::string& root) {
  std::uint64_t available = kUnlimited;
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key, kib;
    words >> key >> kib;
    if (key != "MemAvailable:") continue;
    if (const auto value = number_in(kib)) available = *value * 1024;
  }
  return std::min(available, left_in_groups(root));
}

void check_host_memory(std::uint64_t needed, const std::string& what, std::uint64_t available) {
  if (needed <= available) return;
  throw_user_error(
      "{} needs {} of memory ({} bytes), but this host has {} left ({} bytes); a smaller --max-total-tokens, "
      "a smaller model or more hosts would help",
      what, in_gib(needed), needed, in_gib(available), available);
}

}  // namespace tpsim::rank
