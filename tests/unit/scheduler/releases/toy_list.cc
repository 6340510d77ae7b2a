// The list of releases with a made-up one behind all others. It takes the place of
// scheduler/releases/list.cc.
#include <array>

#include "scheduler/releases/sglang_release.h"

namespace tpsim::scheduler {
namespace {

// What SGLang 0.5.23 does, but for one rule.
SglangRelease v9_9_9() {
  SglangRelease release = {.name = "9.9.9", .rules = v0_5_23().rules};
  release.rules.larger_batches_below_35_gib = false;
  return release;
}

}  // namespace

std::span<const SglangRelease> sglang_releases() {
  static const std::array kReleases = {v0_5_6(),  v0_5_8(),  v0_5_10(), v0_5_12(), v0_5_14(),
                                       v0_5_15(), v0_5_16(), v0_5_23(), v9_9_9()};
  return kReleases;
}

const SglangRelease& default_release() { return parse_sglang_release("0.5.23"); }

}  // namespace tpsim::scheduler
