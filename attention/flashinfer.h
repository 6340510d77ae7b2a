// FlashInfer: batch prefill and decode over a ragged page table, planned on the host before each pass.
//
// Facts from the public sources of flashinfer 0.6 (attention/scheduler.cuh, utils.cuh, decode.cuh) and of
// SGLang's flashinfer_backend.py:
// - query rows of the heads of one KV head are packed; the query tile is 128, 64 or 16 rows by the average
//   packed length;
// - decode uses the tensor-core kernel (the prefill kernel with one query token) where four or more query
//   heads share a KV head or the KV cache is fp8, else a kernel on the vector units;
// - a binary search finds the smallest KV chunk whose blocks still fit the device at once; parts are merged
// by
//   a kernel of their own. A decode planned for a captured graph always takes the splitting kernel;
// - prefill attends to the new tokens from the dense k and v (on Hopper with FlashInfer's FA3 template), to
// the
//   cached prefix with a second, paged kernel without mask, and merges both;
// - SGLang gives it page size 1 whatever the pool's page size is.
// - MLA (flashinfer_mla_backend.py): decode and absorbed extend are one persistent kernel (mla_plans.h); the
// un-absorbed
//   form is the dense prefill kernel, again and again for the chunks of a cached prefix. A cache of another
//   width than the queries is widened as a whole before every call.
// The plan reads the lengths on the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/planned_backend.h"

namespace tpsim::attention {

class FlashInferBackend : public PlannedBackend {
 public:
  // `name`: of a backend that differs in its MLA decode kernel only (flashmla, cutlass_mla, trtllm_mla).
  FlashInferBackend(const proto::HardwareProfile& profile, std::uint32_t page_size,
                    const std::string& name = "flashinfer");

  KernelCost plan_cost() const override;
  double plan_host_seconds() const override;

  static std::uint32_t cta_tile_q(double average_packed_len, std::uint32_t head_dim);
  // Thread blocks of the vector decode kernel that fit one multiprocessor, by shared memory.
  static std::uint32_t decode_blocks_per_multiprocessor(const LayerShape& layer, double shared_memory_bytes);

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  MlaRule mla_rule() const override {
    return {.prefix = MlaPrefix::kFromThreshold, .one_shot = true, .ragged = true};
  }

 private:
  void plan_mla_extend(const LayerShape& layer, ExtendPlan& plan) const;
  // A request for smallest_chunk: its query tiles, each to be cut into parts of its KV tokens.
  void add_demand(std::uint32_t tiles, std::uint32_t tokens);
  // The smallest KV chunk, at least 128 tokens, for which all parts of the demands together are at most
  // `room`; the longest request's KV length if none is. Empties the demands. `guess`: where to look first; it
  // is set to the answer, since the next pass's answer is near, and changes nothing but the time.
  std::uint32_t smallest_chunk(std::uint64_t room, std::uint32_t& guess);

  std::uint32_t decode_guess_ = 0;
  std::uint32_t extend_guess_ = 0;
  std::uint32_t prefix_guess_ = 0;
  std::vector<double> demand_tiles_;  // scratch
  std::vector<double> demand_tokens_;
};

}  // namespace tpsim::attention
