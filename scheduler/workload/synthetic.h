// The load of SGLang's serving benchmark with `--dataset-name random`.
#pragma once

#include <cstdint>
#include <memory>

#include "scheduler/workload/benchmark_random.h"
#include "scheduler/workload/streamed_workload.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Names and defaults are the benchmark's.
struct RandomOptions {
  std::uint64_t num_prompts = 1000;
  std::uint64_t random_input_len = 1024;
  std::uint64_t random_output_len = 1024;
  // Lengths are uniform from this share of the length up to the length: 1 = all equal, 0 = from 1 up.
  double random_range_ratio = 0;
  std::uint32_t seed = 1;
};

// Throws UserError that names the flag that is out of range.
void check(const RandomOptions& options);

// Prompts of which no two share a token, all arriving at 0 (offer them with --request-rate or
// --max-concurrency). Lengths are the benchmark's for equal options, seed included, and are drawn as they are
// read.
class RandomWorkload : public StreamedWorkload {
 public:
  // Throws as check() does.
  explicit RandomWorkload(const RandomOptions& options)
      : RandomWorkload(options, NumpyRandom(options.seed), nullptr) {}
  // Of a generator that other things were drawn from before. `after`, unless null, becomes the one after all
  // that this draws.
  RandomWorkload(const RandomOptions& options, NumpyRandom random, NumpyRandom* after);
};

}  // namespace tpsim::scheduler
