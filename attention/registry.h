// What follows from the list of attention backends: which names there are, whether a combination can be
// carried out, and which backend is chosen when the user names none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "attention/backend.h"
#include "attention/backend_description.h"
#include "attention/gpu_generation.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// In order of preference (attention/CMakeLists.txt).
std::span<const BackendDescription* const> backend_list();
// Throws UserError naming `flag` and the nearest known name.
const BackendDescription& find_backend(const std::string& name, const std::string& flag);
// "fa3", "flashinfer+fa3" …
struct BackendPair {
  std::string prefill;
  std::string decode;
};
BackendPair parse_backend_pair(const std::string& spec, const std::string& flag);

struct CombinationRequest {
  BackendPair pair;
  std::string flag = "--attention-backend";
  std::string gpu;  // name, for the sentence
  GpuGeneration generation = GpuGeneration::kHopper;
  std::uint32_t page_size = 1;
  NumberFormat kv_format = NumberFormat::kBf16;
  bool mla = false;
  bool sliding_window = false;
};
// Throws UserError with a sentence that says what is impossible and what would do.
void check_combination(const CombinationRequest& request);

struct AutomaticChoice {
  std::string backend;  // implemented
  std::string reason;
};
// Throws UserError where no backend of the list runs there.
AutomaticChoice choose_backend(const Selection& selection);

// `spec` as parse_backend_pair. Throws UserError for what is not implemented.
std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size);

}  // namespace tpsim::attention
