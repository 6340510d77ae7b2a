// The list of releases, ascending, and the default.
#include <array>

#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {

std::span<const SglangRelease> sglang_releases() {
  static const std::array kReleases = {v0_5_6(),  v0_5_8(),  v0_5_10(), v0_5_12(),
                                       v0_5_14(), v0_5_15(), v0_5_16(), v0_5_23()};
  return kReleases;
}

const SglangRelease& default_release() { return parse_sglang_release("0.5.23"); }

}  // namespace tpsim::scheduler
