// A GPU for backends to plan for; nothing is priced.
#pragma once

#include "proto/hardware.pb.h"

namespace tpsim::testing {

inline proto::HardwareProfile gpu() {
  proto::HardwareProfile profile;
  profile.set_name("test");
  profile.set_architecture("hopper");
  profile.set_multiprocessors(132);
  profile.set_dense_flops_bf16(1e15);
  profile.set_memory_bandwidth(4e12);
  return profile;
}

}  // namespace tpsim::testing
