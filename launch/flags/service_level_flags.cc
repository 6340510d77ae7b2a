#include "launch/flags/service_level_flags.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "launch/cli/flag_values.h"
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

void declare_service_levels(FlagSet& flags, ServiceLevelArgs& args) {
  flags.group("Service levels");
  flags.add_list("--goodput", "NAME:MS",
                 "milliseconds within which a request is good, of ttft, tpot and e2e, for example ttft:2000 "
                 "tpot:50; compare chooses by it",
                 [&args](std::string_view flag, const std::vector<std::string>& values) {
                   args.goodput = read_service_levels(flag, values);
                 });
  flags.add_switch("--max-goodput-rate",
                   "searches the highest request rate at which enough requests are good, by --request-rate, "
                   "or for a trace with times by --time-scale unless --request-rate is given",
                   args.max_goodput_rate);
  flags.add_value("--goodput-share", "SHARE", "of requests that is enough (default 0.99)",
                  real(args.goodput_share, 0, false, 1, true));
}

void check_service_levels(const ServiceLevelArgs& args, const LoadArgs& load, bool numeric) {
  if (args.goodput_share && !args.max_goodput_rate)
    throw_user_error("--goodput-share {}: needs --max-goodput-rate, whose search it ends",
                     format_real(*args.goodput_share));
  if (!args.max_goodput_rate) return;
  if (!args.goodput.any())
    throw_user_error("--max-goodput-rate: needs --goodput, for example --goodput ttft:2000 tpot:50");
  if (load.max_concurrency != 0)
    throw_user_error(
        "--max-goodput-rate: excludes --max-concurrency {}, which holds requests back instead of offering "
        "them",
        load.max_concurrency);
  if (numeric)
    throw_user_error(
        "--max-goodput-rate: is for --executor modeled, numeric ranks tell no GPU's rate, only this "
        "machine's");
}

}  // namespace tpsim::launch
