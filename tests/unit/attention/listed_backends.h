// The backends of the list that tests of plans run over.
#pragma once

#include <string>
#include <vector>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"

namespace tpsim::attention::testing {

// Backends with an MHA form whose plans are carried out by the paged or the gathered kernel; not dual chunk
// attention, whose layers are another kind (dual_chunk_test.cc). `decode`: only those that also decode.
inline std::vector<std::string> mha_backends(bool decode = false) {
  proto::HardwareProfile gpu;
  gpu.set_multiprocessors(1);
  std::vector<std::string> names;
  for (const BackendDescription* backend : backend_list()) {
    const BackendRow& row = backend->row;
    if (!row.has_mha || row.dual_chunk || (decode && row.prefill_only)) continue;
    const auto made = backend->create(row, gpu, 1);
    if (dynamic_cast<PlannedBackend*>(made.get()) == nullptr) continue;
    if (made->kernel() != KernelKind::kPaged && made->kernel() != KernelKind::kGathered) continue;
    names.emplace_back(row.name);
  }
  return names;
}

// One of the devices that the backend runs on, each in its turn.
inline std::string device_of(const std::string& name, int turn) {
  std::vector<std::string> devices;
  const BackendRow& row = find_backend(name, "--attention-backend").row;
  for (int i = 0; i <= static_cast<int>(GpuGeneration::kCpu); ++i) {
    if (row.generations.contains(static_cast<GpuGeneration>(i)))
      devices.emplace_back(to_string(static_cast<GpuGeneration>(i)));
  }
  return devices[static_cast<std::size_t>(turn) % devices.size()];
}

// Keys outside a window are masked, not left out.
inline bool gathers(const std::string& name) {
  proto::HardwareProfile gpu;
  gpu.set_multiprocessors(1);
  return create_attention_backend(name, gpu, 1)->kernel() == KernelKind::kGathered;
}

}  // namespace tpsim::attention::testing
