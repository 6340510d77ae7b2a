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

// In order of preference (attention/backends/CMakeLists.txt).
std::span<const BackendDescription* const> backend_list();
// By name or alias. Throws UserError naming `flag` and the nearest known name.
const BackendDescription& find_backend(const std::string& name, const std::string& flag);
// "fa3", "flashinfer+fa3" …
struct BackendPair {
  std::string prefill;
  std::string decode;
};
BackendPair parse_backend_pair(const std::string& spec, const std::string& flag);

// A deployment, as far as its attention backends care.
struct CombinationRequest : Selection {
  BackendPair pair;
  // The flags that named them, for sentences.
  std::string flag = "--attention-backend";
  std::string decode_flag;  // empty: `flag` named both
  std::string gpu;          // name, for sentences
  // Of the pool; 0: not decided, not looked at (page_size.h decides).
  std::uint32_t page_size = 1;
  NumberFormat kv_format = NumberFormat::kBf16;
};
// A sentence that says what is impossible and what would do; empty where the pair can be run. Throws
// UserError for names that no backend has.
std::string obstacle(const CombinationRequest& request);
// Throws UserError with that sentence.
void check_combination(const CombinationRequest& request);
// What keeps a backend from a device and model in either role: a clause
// with the backend as subject ("has no MLA form"); empty where nothing does.
std::string unfit(const BackendRow& row, const Selection& selection);

struct AutomaticChoice {
  std::string backend;
  std::string reason;
};
// Throws UserError where no backend of the list runs there.
AutomaticChoice choose_backend(const Selection& selection);

// `spec` as parse_backend_pair.
std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size);

}  // namespace tpsim::attention
