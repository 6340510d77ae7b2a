#include "launch/service_level_args.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

using Level = std::optional<double> scheduler::ServiceLevels::*;

constexpr std::array<std::pair<std::string_view, Level>, 4> kLevels = {{
    {"ttft", &scheduler::ServiceLevels::ttft_ms},
    {"tpot", &scheduler::ServiceLevels::tpot_ms},
    {"e2e", &scheduler::ServiceLevels::e2e_ms},
    {"e2el", &scheduler::ServiceLevels::e2e_ms},
}};
constexpr std::size_t kNames = 3;  // without the second name of e2e
constexpr double kLongest = 1e12;  // milliseconds; longer ones are slips of the keyboard

void read_pair(std::string_view flag, const std::string& pair, scheduler::ServiceLevels& levels) {
  const std::size_t colon = pair.find(':');
  const std::string name = pair.substr(0, colon);
  const auto* const found = std::find_if(kLevels.begin(), kLevels.end(),
                                         [&name](const auto& level) { return level.first == name; });
  if (colon == std::string::npos || found == kLevels.end())
    throw_user_error("{} {}: must be ttft, tpot or e2e, a colon and milliseconds, for example ttft:2000",
                     flag, pair.empty() ? "''" : pair);
  std::optional<double>& level = levels.*found->second;
  if (level) throw_user_error("{} {}: is named twice", flag, pair);
  level = parse_real(fmt::format("{} {}", flag, name), pair.substr(colon + 1), 0, false, kLongest, true);
}

}  // namespace

scheduler::ServiceLevels read_service_levels(std::string_view flag, const std::vector<std::string>& values) {
  scheduler::ServiceLevels levels;
  for (const std::string& value : values) {
    for (const std::string& pair : split_list(value)) read_pair(flag, pair, levels);
  }
  return levels;
}

std::string to_string(const scheduler::ServiceLevels& levels) {
  std::string text;
  for (std::size_t i = 0; i < kNames; ++i) {
    const std::optional<double>& level = levels.*kLevels[i].second;
    if (level) text += fmt::format("{}{}:{}", text.empty() ? "" : " ", kLevels[i].first, format_real(*level));
  }
  return text;
}

}  // namespace tpsim::launch
