// The cost of a plan on a GPU.
//
// Decode: thread blocks stream their part of the KV cache. The kernel takes as long as the device needs for
// all bytes, or as the longest block needs alone, or as the arithmetic takes, whichever is most, plus a part
// of the others that does not overlap, a fixed time, and a time per wave of blocks over the multiprocessors.
//
// Extend: each tile multiplies its query rows with the KV range it sees. The multiprocessors share the tiles;
// the last ones to finish cost a part of the longest tile.
//
// The coefficients are fitted to measured kernels by tests/calibration/fit_attention.cc and come in with the
// hardware profile, class "attention.BACKEND.extend" and "attention.BACKEND.decode".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "attention/plan.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// Coefficients of one operator class; the defaults hold where a profile has no such class. Names of
// OperatorEfficiency.parameters in the comments.
struct PlanCoefficients {
  double compute = 0.5;  // of the dense rate
  double memory = 0.8;   // of the memory bandwidth
  double fixed_seconds = 5e-6;
  double block_seconds = 1e-6;  // "block_seconds": start and end of one thread block, per wave
  // "resident": thread blocks of a wave on one multiprocessor, at most as many as the plan says (decode)
  double resident = 1;
  double block_memory = 2.0;    // "block_memory": one block streams this x bandwidth / multiprocessors
  double block_compute = 1.0;   // "block_compute": one block reaches this x its multiprocessor's share
  double overlap = 0.3;         // "overlap": share of the lesser costs that is not hidden
  double tail = 0.5;            // "tail": share of the lesser of mean load and longest tile added (extend)
  double merge_seconds = 3e-6;  // "merge_seconds": fixed cost of adding up parts
  double vector_compute = 0.1;  // "vector_compute": factor on `compute` for kernels without tensor cores
  double l2_memory = 3;         // "l2_memory": bandwidth of the L2 cache / that of memory (hot only)
  double head_dim_64 = 1;       // "head_dim_64" …: factor on `compute` for head sizes other than 128
  double head_dim_192 = 1;
  double head_dim_256 = 1;
  double head_dim_512 = 1;
  double fp8_kv = 1;       // "fp8_kv": factor on `memory` where the KV cache is fp8 and q is not
  double fp8_convert = 1;  // "fp8_convert": factor on `compute` there, for the conversion
  double fp8_compute = 1;  // "fp8_compute": factor on `compute` where q is fp8 too
  double window = 1;       // "window": factor on the time of sliding-window layers
  double gather = 0.6;     // "gather": factor on `memory` for copies through an index
  // "fp8_seconds": added where the KV cache is fp8: casts of q, k and v before the kernel
  double fp8_seconds = 0;
  // "write" (hot only): kernel benchmarks write the new keys and values to the cache, too, which is an
  // operator of its own in a model (rank/model): factor on their time at full bandwidth. "cast": factor on
  // the time of q, k and v becoming fp8 for an fp8 cache.
  double write = 0;
  double cast = 0;
  // "walk": a step of the loop whose keys are all masked, of a computed one (plans that walk their windows)
  double walk = 0.5;
  // "window_seconds": added for sliding-window layers, whose indices some backends look up
  double window_seconds = 0;
  // "head_dim_192_seconds": added for head sizes over 128 and up to 192
  double head_dim_192_seconds = 0;
  // "block_width_seconds": added to block_seconds for each KiB of a cached token and head (decode): a block
  // moves whole steps of its loop, however few tokens it has
  double block_width_seconds = 0;
  // "merge_part_seconds": of each part of the request with the most, which are added up one after another
  double merge_part_seconds = 0;
  double prefix = 1;  // "prefix": factor on the rate of a separate kernel for the cached prefix (extend)
  // Host time of an eager pass. "launch_seconds": of one kernel of this backend; 0 = as any other kernel.
  // "shape_seconds": of each KV length that a decode meets for the first time (libraries that build an
  // execution plan for every shape).
  double launch_seconds = 0;
  double shape_seconds = 0;
};

PlanCoefficients coefficients_of(const proto::HardwareProfile& profile, const std::string& operator_class);
std::vector<std::string_view> plan_parameter_names();
// The inverse, for the fit; parameters that have their defaults are left out.
void write_coefficients(const PlanCoefficients& coefficients, proto::OperatorEfficiency& out);

// `count` sequences of `length` tokens.
struct SequenceGroup {
  std::uint32_t length = 0;
  std::uint32_t count = 0;
  friend bool operator==(const SequenceGroup&, const SequenceGroup&) = default;
};

// Where the KV cache is when the kernel starts. Kernel benchmarks call one layer again and again on the same
// KV, which stays in L2 if it fits; in serving, other layers have pushed it out.
enum class Residency : std::uint8_t { kCold, kHot };

class PlanCost {
 public:
  PlanCost(const proto::HardwareProfile& profile, const PlanCoefficients& coefficients,
           Residency residency = Residency::kCold);

  KernelCost decode(const DecodePlan& plan, const LayerShape& stored) const;
  KernelCost extend(const ExtendPlan& plan, const LayerShape& stored) const;
  // `q_len` query tokens against all of `kv_len` tokens, without a mask, in one kernel with the tiles of
  // `plan` (whose items are not read).
  KernelCost extend_all(const ExtendPlan& plan, std::uint32_t q_len, std::uint32_t kv_len,
                        const LayerShape& layer) const;
  // Sequences that attend to themselves only, without a mask, in one kernel with the tiles of `plan` (whose
  // items are not read): vision encoders. A tile of a sequence walks all of it.
  KernelCost encode(const ExtendPlan& plan, std::span<const SequenceGroup> sequences,
                    const LayerShape& layer) const;
  // A copy through an index (a gather) that moves `bytes`, reads and writes together.
  KernelCost gather(double bytes, const LayerShape& layer) const;

 private:
  double special_seconds(const LayerShape& layer) const;
  // New keys and values to the cache, and their casts where it is fp8.
  double write_seconds(double tokens, const LayerShape& layer) const;

  struct Load;  // of one kernel's thread blocks
  KernelCost mla_chunks(const ExtendPlan& plan, const LayerShape& layer, double q_tokens) const;
  double flops_per_second(const LayerShape& layer) const;
  double memory_seconds(double bytes, const LayerShape& layer) const;
  double tiles_seconds(const Load& load, const LayerShape& layer, double rate) const;

  PlanCoefficients c_;
  double bf16_flops_;
  double fp8_flops_;
  double bandwidth_;
  double multiprocessors_;
  double hot_bytes_;  // L2 that holds what was read before; 0 = cold
};

}  // namespace tpsim::attention
