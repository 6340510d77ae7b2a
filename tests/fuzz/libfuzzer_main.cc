// libFuzzer's entry for the one target of TPSIM_FUZZ_ROOM() that TPSIM_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/fuzz_targets.h"

namespace {

const tpsim::fuzz::FuzzTarget& target() {
  for (const tpsim::fuzz::FuzzTarget& candidate : tpsim::fuzz::TPSIM_FUZZ_ROOM()) {
    if (candidate.name == TPSIM_FUZZ_TARGET) return candidate;
  }
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tpsim::fuzz::FuzzTarget& chosen = target();
  chosen.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
