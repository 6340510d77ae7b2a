// Arithmetic in the place of a model: sums that depend on every length of the batch and do not round to
// even numbers, so that a difference anywhere shows in the last bit.
#pragma once

#include <cmath>

#include "rank/llm/rank_model.h"

namespace tpsim::rank {

class FakeModel : public RankModel {
 public:
  // `bias` makes shards differ; `work` additions (about 1 ns each) stand for a slower price.
  explicit FakeModel(double bias = 1.0, int work = 1) : bias_(bias), work_(work) {}

  StepCost forward(const attention::ForwardMetadata& metadata) override {
    volatile double busy = 0;
    for (int i = 1; i < work_; ++i) busy = busy + 1;
    return price(metadata);
  }

 private:
  StepCost price(const attention::ForwardMetadata& metadata) const {
    StepCost cost;
    double tokens = 0;
    for (std::size_t i = 0; i < metadata.extend_lens.size(); ++i) {
      const double length = metadata.extend_lens[i];
      tokens += length;
      cost.attention += 1.3e-9 * length * (metadata.extend_prefix_lens[i] + length / 2) * bias_;
    }
    for (const std::uint32_t length : metadata.decode_seq_lens) {
      tokens += 1;
      cost.attention += 1.7e-9 * (1000.0 + length) * bias_;
    }
    cost.gemm = (1e-3 + 1.1e-6 * tokens) * bias_;
    cost.collective = 3e-5 + 7.7e-8 * tokens;
    cost.other = 2.1e-4 / 3;
    cost.launch = metadata.capture_bucket != 0 ? 1e-5 : 3e-4;
    cost.flops = tokens * 1.7e9 * bias_;
    cost.memory_bytes = 1.7e10 + tokens / 3;
    cost.communicated_bytes = tokens * 16384 / 7;
    cost.host_seconds = 1e-5 + tokens * 1e-9;
    return cost;
  }

  double bias_;
  int work_;
};

}  // namespace tpsim::rank
