// The steps of a run, few enough for a page that stays small: up to kMaxBlocks of them one by one, of longer
// runs blocks of 2, 4, 8 … consecutive steps (steps.csv has them all).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/records.h"

namespace tpsim::launch {

class StepProfile {
 public:
  static constexpr std::size_t kMaxBlocks = 1 << 16;

  void add(const scheduler::StepRecord& step);
  // Joins blocks in pairs.
  void coarsen();

  std::size_t size() const { return blocks_.size(); }  // blocks
  std::uint64_t steps() const { return steps_; }
  std::uint64_t steps_per_block() const { return steps_per_block_; }

  // Base64 of seven unsigned LEB128 numbers for each block: microseconds between the end of the block before
  // and its start; microseconds of prefill, of decode and of mixed passes; new prompt tokens; decoded tokens;
  // steps in it, which are zero where there are steps_per_block(). Idle time inside a block counts to
  // the gap after it.
  std::string encoded() const;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(blocks_, steps_per_block_, steps_);
  }

 private:
  struct Block {
    double start = 0;
    double prefill_seconds = 0, decode_seconds = 0, mixed_seconds = 0;
    std::uint64_t extend_tokens = 0, decode_tokens = 0;
    std::uint64_t steps = 0;

    void add(const Block& other);
  };

  std::vector<Block> blocks_;
  std::uint64_t steps_per_block_ = 1;
  std::uint64_t steps_ = 0;
};

}  // namespace tpsim::launch
