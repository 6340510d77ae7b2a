// libFuzzer's entry for the one target that TPSIM_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/fuzz_targets.h"

namespace {

const tpsim::fuzz::FuzzTarget& target() {
  for (const auto targets :
       {tpsim::fuzz::trace_targets(), tpsim::fuzz::weights_targets(), tpsim::fuzz::model_targets(),
        tpsim::fuzz::prompt_targets(), tpsim::fuzz::measurement_targets(), tpsim::fuzz::serve_targets(),
        tpsim::fuzz::checkpoint_targets()}) {
    for (const tpsim::fuzz::FuzzTarget& candidate : targets) {
      if (candidate.name == TPSIM_FUZZ_TARGET) return candidate;
    }
  }
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tpsim::fuzz::FuzzTarget& chosen = target();
  chosen.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
