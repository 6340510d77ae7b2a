#include "launch/fleet/fleet_file.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <tuple>
#include <utility>

#include "launch/cli/shell_line.h"
#include "launch/cli/yaml_file.h"
#include "launch/flags/elastic_flags.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

constexpr std::array<std::string_view, 3> kGroups = {"workers", "prefill", "decode"};
constexpr std::array<std::string_view, 6> kGroupKeys = {"name",  "count",    "autoscale",
                                                        "share", "hardware", "args"};
constexpr std::uint64_t kMostServers = 100'000;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) { fleet_.path = path; }

  FleetFile read(const YAML::Node& root) {
    if (!root.IsMap()) fail(1, "a mapping with the keys workers, or prefill and decode, is expected");
    for (const auto& [key, value] : checked(root)) {
      if (key == "router") {
        fleet_.router_line = line_of(value);
        fleet_.router_flags = line_flags(key, value);
      } else if (std::ranges::find(kGroups, key) != kGroups.end()) {
        read_groups(key, value);
      } else {
        refuse_key(line_of(value), key, {"router", "workers", "prefill", "decode"});
      }
    }
    check();
    return std::move(fleet_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(std::uint64_t line, fmt::format_string<Args...> format, Args&&... args) const {
    throw_user_error("{}:{}: {}", path_, line, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse_key(std::uint64_t line, const std::string& key,
                               const std::vector<std::string_view>& known) const {
    const std::string_view guess = nearest(key, known);
    fail(line, "{}: is no key of a fleet, {}", key,
         guess.empty() ? fmt::format("use {}", join_or(known)) : fmt::format("did you mean {}?", guess));
  }
  static std::uint64_t line_of(const YAML::Node& node) {
    return static_cast<std::uint64_t>(std::max(0, node.Mark().line) + 1);
  }

  // Pairs of a mapping, no key twice. yaml-cpp lets a later one win.
  std::vector<std::pair<std::string, YAML::Node>> checked(const YAML::Node& map) const {
    std::vector<std::pair<std::string, YAML::Node>> pairs;
    std::set<std::string> seen;
    for (const auto& pair : map) {
      if (!pair.first.IsScalar()) fail(line_of(pair.first), "a key must be a word");
      pairs.emplace_back(pair.first.Scalar(), pair.second);
      if (!seen.insert(pairs.back().first).second)
        fail(line_of(pair.first), "{} is given twice", pairs.back().first);
    }
    return pairs;
  }

  std::string scalar(const std::string& key, const YAML::Node& node) const {
    if (!node.IsScalar() || node.Scalar().empty()) fail(line_of(node), "{}: a value is expected", key);
    return node.Scalar();
  }

  // A launch line, or a list of its words.
  std::vector<std::string> line_flags(const std::string& key, const YAML::Node& node) const {
    if (node.IsNull()) return {};
    try {
      if (node.IsScalar()) return launch_flags(node.Scalar());
      if (node.IsSequence()) {
        std::vector<std::string> words;
        for (const YAML::Node& word : node) words.push_back(scalar(key, word));
        drop_program(words);
        return words;
      }
    } catch (const UserError& error) {
      fail(line_of(node), "{}: {}", key, error.what());
    }
    fail(line_of(node), "{}: a launch line, or a list of its words, is expected", key);
  }

  std::uint32_t count_of(const YAML::Node& node) const {
    const std::string text = scalar("count", node);
    std::uint32_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count == 0 || count > kMostServers)
      fail(line_of(node), "count: {}: must be a number of servers, 1 to {}", text, kMostServers);
    return count;
  }

  double share_of(const std::string& key, const YAML::Node& node) const {
    if (key != "workers") fail(line_of(node), "share: of {} is not simulated; give workers", key);
    const std::string text = scalar("share", node);
    constexpr double kMost = 1e6;
    double share = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
    if (error != std::errc() || end != text.data() + text.size() || !(share > 0 && share <= kMost))
      fail(line_of(node), "share: {}: must be a part of requests, above 0 and at most {:g}", text, kMost);
    return share;
  }

  void read_range(const YAML::Node& node, ServerGroup& group) const {
    try {
      std::tie(group.least, group.most) = parse_replica_range("autoscale", scalar("autoscale", node));
    } catch (const UserError& error) {
      fail(line_of(node), "{}", error.what());
    }
  }

  void read_groups(const std::string& key, const YAML::Node& node) {
    if (node.IsMap()) return read_group(key, node);
    if (!node.IsSequence() || node.size() == 0)
      fail(line_of(node), "{}: a list of {{count, hardware, args}} is expected", key);
    for (const YAML::Node& group : node) read_group(key, group);
  }

  void read_group(const std::string& key, const YAML::Node& node) {
    if (!node.IsMap()) fail(line_of(node), "{}: {{count, hardware, args}} is expected", key);
    ServerGroup group;
    group.key = key;
    group.line = line_of(node);
    bool has_args = false;
    for (const auto& [name, value] : checked(node)) {
      if (name == "name") {
        group.name = scalar(name, value);
      } else if (name == "count") {
        group.count = count_of(value);
      } else if (name == "autoscale") {
        read_range(value, group);
      } else if (name == "share") {
        group.share = share_of(key, value);
      } else if (name == "hardware") {
        group.hardware = scalar(name, value);
      } else if (name == "args") {
        group.flags = line_flags(name, value);
        has_args = true;
      } else {
        refuse_key(line_of(value), name, {kGroupKeys.begin(), kGroupKeys.end()});
      }
    }
    if (group.hardware.empty())
      fail(group.line, "{}: hardware is missing: the GPU of these servers, for example h200-sxm", key);
    if (!has_args)
      fail(group.line, "{}: args is missing: the launch line of these servers, --model-path at least", key);
    if (group.scales() && (group.count < group.least || group.count > group.most))
      fail(group.line, "autoscale: {}..{}: count {} lies outside of it; begin with as many as it may have",
           group.least, group.most, group.count);
    const auto before = std::ranges::count(fleet_.groups, key, &ServerGroup::key);
    if (group.name.empty()) group.name = before == 0 ? key : fmt::format("{} {}", key, before + 1);
    if (std::ranges::count(fleet_.groups, group.name, &ServerGroup::name) > 0)
      fail(group.line, "name: {}: another group has it", group.name);
    fleet_.groups.push_back(std::move(group));
  }

  void check() const {
    const bool workers = fleet_.has("workers");
    const bool prefill = fleet_.has("prefill");
    const bool decode = fleet_.has("decode");
    if (!workers && !prefill && !decode)
      fail(1, "names no server: workers, or prefill and decode, are missing");
    if (workers && (prefill || decode))
      fail(1, "workers beside {}: a fleet is split into prefill and decode or it is not",
           prefill ? "prefill" : "decode");
    if (!workers && prefill != decode)
      fail(1, "{0} is missing: servers that {1} need others that {2}", prefill ? "decode" : "prefill",
           prefill ? "prefill" : "decode", prefill ? "decode" : "prefill");
    if (fleet_.servers() > kMostServers)
      fail(1, "{} servers, at most {} are simulated", fleet_.servers(), kMostServers);
    if (fleet_.servers() > 1 && fleet_.router_line == 0)
      fail(1,
           "router is missing: which of the {} servers is a request sent to? for example `router: "
           "--policy cache_aware`",
           fleet_.servers());
  }

  const std::string& path_;
  FleetFile fleet_;
};

}  // namespace

std::uint64_t FleetFile::servers() const {
  std::uint64_t sum = 0;
  for (const ServerGroup& group : groups) sum += group.slots();
  return sum;
}

bool FleetFile::has(std::string_view key) const {
  return std::ranges::find(groups, key, &ServerGroup::key) != groups.end();
}

FleetFile parse_fleet(const std::string& text, const std::string& path) {
  const YAML::Node root = load_yaml(text, path, "one fleet");
  if (root.IsNull())
    throw_user_error("{}:1: is empty; workers with count, hardware and args are expected", path);
  return Reader(path).read(root);
}

FleetFile read_fleet_file(const std::string& path) { return parse_fleet(read_text("--fleet", path), path); }

}  // namespace tpsim::launch
