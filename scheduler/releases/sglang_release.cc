#include "scheduler/releases/sglang_release.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "proto/base/error.h"

namespace tpsim::scheduler {

std::vector<std::string_view> sglang_release_names() {
  std::vector<std::string_view> names;
  for (const SglangRelease& release : sglang_releases()) names.push_back(release.name);
  return names;
}

const SglangRelease& first_release_with(bool ReleaseRules::*rule) {
  return *std::ranges::find_if(sglang_releases(), [rule](const SglangRelease& r) { return r.rules.*rule; });
}

const SglangRelease& parse_sglang_release(std::string_view name) {
  const auto found = std::ranges::find(sglang_releases(), name, &SglangRelease::name);
  if (found == sglang_releases().end())
    throw_user_error("--sglang-version {}: the rules of {} are known", name,
                     fmt::join(sglang_release_names(), ", "));
  return *found;
}

}  // namespace tpsim::scheduler
