// Coefficients of price formulas: what a hardware profile says of one operator class. The one place that
// lists them, with their defaults, their names in a profile, and which formula takes them; the formulas
// themselves are those of the file named at each.
//
// OperatorEfficiency has compute, memory and fixed_seconds as fields of its own; all others stand in its
// `parameters` under the name of the member here.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "proto/hardware.pb.h"

namespace tpsim {

// Attention by a plan (attention/plan_cost.h): classes "attention.BACKEND.extend", ".decode", ".mla_…", and
// of backends with several kernels "attention.BACKEND.KERNEL.extend" and ".decode".
struct PlanCoefficients {
  double compute = 0.5;  // of the dense rate
  double memory = 0.8;   // of the memory bandwidth
  double fixed_seconds = 5e-6;
  double block_seconds = 1e-6;  // start and end of one thread block, per wave
  double resident = 1;          // blocks of a wave on a multiprocessor, at most what the plan says (decode)
  double block_memory = 2.0;    // one block streams this x bandwidth / multiprocessors
  double block_compute = 1.0;   // one block reaches this x its multiprocessor's share
  double block_compute_64 = 1;  // factor on it for heads of up to 64, whose blocks some kernels make smaller
  double overlap = 0.3;         // share of the lesser costs that is not hidden
  double tail = 0.5;            // share of the lesser of mean load and longest tile added (extend)
  double wave_tail = 0;         // how much less of the tail there is where one wave holds all tiles (extend)
  double in_order = 0;  // tiles begin request by request, the longest of each first: share of the work
                        // before a request that its longest tile waits for (extend)
  double merge_seconds = 3e-6;  // fixed cost of adding up parts
  double vector_compute = 0.1;  // factor on `compute` for kernels without tensor cores
  double l2_memory = 3;         // bandwidth of the L2 cache / that of memory (hot only)
  double head_dim_64 = 1;       // factor on `compute` for head sizes other than 128
  double head_dim_192 = 1;
  double head_dim_256 = 1;
  double head_dim_512 = 1;
  double fp8_kv = 1;       // factor on `memory` where the KV cache is fp8 and q is not
  double fp8_convert = 1;  // factor on `compute` there, for the conversion
  double fp8_compute = 1;  // factor on `compute` where q is fp8 too
  double window = 1;       // factor on the time of sliding-window layers
  double window_64 = 1;    // factor on it for heads of up to 64
  double gather = 0.6;     // factor on `memory` for copies through an index
  double fp8_seconds = 0;  // added where the KV cache is fp8: casts of q, k and v before the kernel
  // Hot only: kernel benchmarks write the new keys and values to the cache, too, which is an operator of its
  // own in a model (rank/config): factor on their time at full bandwidth. `cast`: factor on the time of q, k
  // and v becoming fp8 for an fp8 cache.
  double write = 0;
  double hot_seconds = 0;  // of launching those kernels beside the one that counts
  double cast = 0;
  double walk = 0.5;          // a step whose keys are all masked, of a computed one (plans that walk windows)
  double window_seconds = 0;  // added for sliding-window layers, whose indices some backends look up
  double head_dim_192_seconds = 0;  // added for head sizes over 128 and up to 192
  // Added to block_seconds for each KiB of a cached token and head (decode): a block moves whole steps of its
  // loop, however few tokens it has.
  double block_width_seconds = 0;
  double merge_part_seconds = 0;  // of each part of the request with the most, which are added up in turn
  double merge_row_seconds = 0;   // of each query row and head that is merged, on one multiprocessor (extend)
  double merge_block_seconds = 0;  // of each thread block of the kernel that merges, of all the device's
                                   // (extend)
  double cached = 1;               // a step over cached tokens, of one over new ones, in one kernel (extend)
  double cached_64 = 1;            // factor on it for heads of up to 64
  double fresh_256 = 1;  // a step over new tokens, of any other, where 16-bit heads are wider than 192 and
                         // have no window: a kernel that spills registers there (extend)
  double prefix = 1;     // factor on the rate of a separate kernel for the cached prefix (extend)
  // Host time of an eager pass. Of one kernel of this backend (0: as any other kernel), and of each KV length
  // that a decode meets for the first time (libraries that build an execution plan for every shape).
  double launch_seconds = 0;
  double shape_seconds = 0;
};

// The indexer of sparse attention (attention/sparse_cost.h): classes "attention.BACKEND.indexer.extend" and
// ".decode".
struct IndexCoefficients {
  double compute = 0.5;  // of the dense fp8 rate
  double memory = 0.5;   // of the memory bandwidth
  double fixed_seconds = 2.5e-5;
  double overlap = 0.1;                 // share of the lesser of arithmetic and memory that is not hidden
  double select_seconds = 1e-5;         // picking the best top_k of a row of logits
  double select_token_seconds = 4e-10;  // of each logit of such a row
};

// Matrix products, experts, collectives, elementwise kernels (rank/cost/op_cost.h): all other classes.
struct OperatorCoefficients {
  double compute = 0.75;  // of the dense rate
  double memory = 0.8;    // of the memory (collectives: link) bandwidth
  double fixed_seconds = 3e-6;
  double tile_seconds = 5e-7;  // start and end of one output tile
  double overlap = 0.2;        // share of the lesser of arithmetic and memory that is not hidden
  double fill = 2.0;           // a tile streams this x bandwidth / multiprocessors
  double k_seconds = 0;        // of a tile for each element along k, arithmetic or not
  double quantize = 0.5;       // share of the memory bandwidth while inputs are quantised
  double rows = 1.5;           // MoE, passes over the rows between the projections, as counted bytes
  // Products: adding up the parts of one whose k is cut to occupy more multiprocessors (split-k); 0: the
  // library cuts none.
  double split_seconds = 0;
  // Products in a benchmark's loop whose operands stay in the L2: factor on `memory`. No served layer's do.
  double hot_memory = 1;
  double per_gpu_seconds = 0;  // collectives, per GPU of the group
  // Collectives over links that the GPUs share (PCIe): share by which each GPU beyond two slows the bytes.
  double shared_link = 0;
  double two_shot_seconds = 0;  // the custom all-reduce in two shots: the barrier between them
  double served = 0;  // power limits: of the dense rate, what the products of a served pass reach at least
  double reach = 1;   // products: of the dense rate, what none is faster than, however large
};

// What `profile` says of a class; null where nothing.
const proto::OperatorEfficiency* find_efficiency(const proto::HardwareProfile& profile,
                                                 std::string_view operator_class);

// The coefficients of a class: those of `profile`, and what it leaves open from `defaults`. One of the three
// structs above.
template <typename Coefficients>
Coefficients coefficients_of(const proto::HardwareProfile& profile, std::string_view operator_class,
                             Coefficients defaults = {});
// The inverse, for fits; parameters that have their defaults are left out.
template <typename Coefficients>
void write_coefficients(const Coefficients& coefficients, proto::OperatorEfficiency& out);
// The parameters that a class takes.
std::vector<std::string_view> parameter_names(std::string_view operator_class);

// Features that the corrections of a class (proto/correction_surface.h) may have axes of, in the order in
// which its formula gives them; the formula's file says what they count.
inline constexpr std::string_view kGemmFeatures[] = {"m", "n", "k"};
// `experts` of the rank; rows: of each of them that is hit.
inline constexpr std::string_view kExpertFeatures[] = {"tokens",  "hidden", "width",
                                                       "experts", "top_k",  "rows"};
// `bytes` of the message (all-gather: that every GPU ends up with).
inline constexpr std::string_view kCollectiveFeatures[] = {"bytes", "gpus"};
// `tokens` of each request, in the mean; `rows`: of all; `heads` of values, of which a key's has `group`;
// `channels` of the convolution; `states`: heads of all requests.
inline constexpr std::string_view kDeltaFeatures[] = {"requests", "tokens",   "rows",  "heads",
                                                      "group",    "channels", "states"};
// Both kinds of plans (attention/plan.h). requests: items of the plan; tokens: mean KV tokens that
// one reads (decode), or mean new tokens (extend); prefix: mean cached tokens before them (extend); kv_heads,
// group (query heads of a KV head), head_dim (of keys), window: of the layer; element_bytes: of an element of
// q and of one of KV together; blocks: thread blocks a multiprocessor; part: KV tokens of the longest block;
// spread: KV tokens of the longest request over the mean; rows: query rows that a request brings to a KV head
// (tokens x group; decode: group); l2_fill: bytes read over those of the L2 that may
// hold them (hot; a cold one holds nothing: kNothingHeld).
inline constexpr std::string_view kPlanFeatures[] = {
    "requests",      "tokens", "prefix", "kv_heads", "group",   "head_dim", "window",
    "element_bytes", "blocks", "part",   "spread",   "l2_fill", "rows"};
inline constexpr double kNothingHeld = 1e6;
// MLA's products by W_UK and W_UV: rows of a head, and the columns that they become.
inline constexpr std::string_view kBatchedGemmFeatures[] = {"heads", "m", "n"};
std::span<const std::string_view> feature_names(std::string_view operator_class);

}  // namespace tpsim
