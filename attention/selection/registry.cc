#include "attention/selection/registry.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "attention/selection/hybrid_backend.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

std::unique_ptr<AttentionBackend> create_one(const std::string& name, const proto::HardwareProfile& profile,
                                             std::uint32_t page_size) {
  const BackendDescription& backend = find_backend(name, "--attention-backend");
  return backend.create(backend.row, profile, page_size);
}

}  // namespace

const BackendDescription& find_backend(const std::string& name, const std::string& flag) {
  std::vector<std::string_view> known;
  for (const BackendDescription* backend : backend_list()) {
    if (name == backend->row.name || (!name.empty() && name == backend->row.alias)) return *backend;
    known.push_back(backend->row.name);
  }
  const std::string guess = did_you_mean(name, known);
  throw_user_error("{} {}: unknown attention backend{} Implemented are {}", flag, name,
                   guess.empty() ? "." : guess, fmt::join(known, ", "));
}

BackendPair parse_backend_pair(const std::string& spec, const std::string& flag) {
  const std::size_t plus = spec.find('+');
  const BackendRow& prefill = find_backend(spec.substr(0, plus), flag).row;
  const BackendRow& decode = find_backend(plus == std::string::npos ? spec : spec.substr(plus + 1), flag).row;
  return {std::string(prefill.name), std::string(decode.name)};
}

std::unique_ptr<AttentionBackend> create_attention_backend(const std::string& spec,
                                                           const proto::HardwareProfile& profile,
                                                           std::uint32_t page_size) {
  const BackendPair pair = parse_backend_pair(spec, "--attention-backend");
  if (pair.prefill == pair.decode) return create_one(pair.prefill, profile, page_size);
  return std::make_unique<HybridAttnBackend>(create_one(pair.prefill, profile, page_size),
                                             create_one(pair.decode, profile, page_size));
}

}  // namespace tpsim::attention
