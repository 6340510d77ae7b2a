#include "launch/report/run_names.h"

#include <algorithm>

namespace tpsim::launch {

std::string flag_of(const proto::SweepAxis& axis) {
  std::string flag = "--" + axis.flag();
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string setting_name(const proto::ComparisonReport& report, const Settings& settings) {
  std::string name;
  for (const proto::SweepAxis& axis : report.sweep().axes()) {
    const auto value = settings.find(axis.flag());
    if (value == settings.end()) continue;
    name += name.empty() ? "" : ", ";
    name += axis.flag() == kBackendAxis ? value->second : flag_of(axis) + " " + value->second;
  }
  return name;
}

std::string run_name(const proto::ComparisonReport& report, const proto::RunReport& run) {
  return run.settings().empty() ? run.backend() : setting_name(report, run.settings());
}

bool same(const Settings& a, const Settings& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&b](const auto& entry) {
           const auto other = b.find(entry.first);
           return other != b.end() && other->second == entry.second;
         });
}

bool is_best(const proto::ComparisonReport& report, const proto::RunReport& run) {
  return !report.best().empty() && run.backend() == report.best() &&
         same(run.settings(), report.best_setting());
}

}  // namespace tpsim::launch
