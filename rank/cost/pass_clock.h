// Device time against host time of a pass: the one place where both are summed, for language models and image
// encoders alike.
//
// The host issues one kernel after another from Python while the device executes those before, so that a pass
// takes as long as the slower of the two. In a captured graph the host is out of the way: one launch, and a
// short gap for each kernel.
#pragma once

#include <algorithm>

#include "proto/hardware.pb.h"

namespace tpsim::rank {

// HostProfile's seconds of Python were measured on a host that takes 46 us to launch a kernel; one that takes
// `launch_seconds` is taken to be so many times as slow at all of it.
constexpr double host_pace(double launch_seconds) { return launch_seconds / 46e-6; }

// A part of a pass, in seconds.
struct IssuedTime {
  double device = 0;  // its kernels, and the gaps between them
  double issue = 0;   // the host's, that issues them
  double seconds() const { return std::max(device, issue); }
  friend IssuedTime operator+(const IssuedTime& a, const IssuedTime& b) {
    return {a.device + b.device, a.issue + b.issue};
  }
};

class PassClock {
 public:
  explicit PassClock(const proto::HardwareProfile& profile)
      : launch_(profile.kernel_launch_seconds()),
        gap_(profile.graph_kernel_gap_seconds()),
        replay_(profile.graph_replay_seconds()) {}

  // Host seconds of issuing one kernel; of launching one graph.
  double launch_seconds() const { return launch_; }
  double replay_seconds() const { return replay_; }
  // `launches` kernels that take `seconds` by themselves, and which the host issues in `issue` seconds. They
  // leave the same gaps as in a graph.
  IssuedTime eager(double seconds, double launches, double issue) const {
    return {seconds + launches * gap_, issue};
  }
  // What a replayed graph of `launches` kernels takes beyond them.
  double captured(double launches) const { return replay_ + launches * gap_; }

 private:
  double launch_, gap_, replay_;
};

}  // namespace tpsim::rank
