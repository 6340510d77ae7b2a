// A GPU for backends to plan for; its figures are round, so that a test can say what a price must be.
#pragma once

#include <string>

#include "proto/hardware.pb.h"

namespace tpsim::testing {

inline proto::HardwareProfile gpu(const std::string& architecture = "hopper") {
  proto::HardwareProfile profile;
  profile.set_name("test");
  profile.set_architecture(architecture);
  profile.set_multiprocessors(132);
  profile.set_dense_flops_bf16(1e15);
  profile.set_memory_bandwidth(4e12);
  return profile;
}

}  // namespace tpsim::testing
