// What the operators other than attention cost on one GPU.
//
// GEMM: output tiles over the multiprocessors in waves, against the bytes of the operands; the best of a few
// tile shapes, as a library would choose; in 8 and 4 bit also the kernel that quantises the input, which
// the measured figures contain. MoE: both projections so, on the experts' rows padded to whole tiles, with
// the weights of the experts that are hit, and the passes over all rows between and behind them.
// Collectives (collective_cost.cc): a fixed latency and the bytes that cross the links. Elementwise: bytes.
//
// What a class's corrections (proto/correction_surface.h) say multiplies that. A corrected price does not
// fall as m, the tokens or the bytes grow (MonotonePrice), nor below the peaks of the
// datasheet. Coefficients (proto/coefficients.h) and corrections are fitted to measured kernels by
// launch/lab/calibrate/fit_operators.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attention/backend.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"
#include "rank/config/weight_format.h"
#include "rank/cost/delta_kernels.h"
#include "rank/cost/matrix_kernel.h"
#include "rank/cost/routed_experts.h"

namespace tpsim::rank {

using attention::KernelCost;

// Prices that never fall as an operator's work grows.
//
// Measured kernels do fall at places (a library changes its tile, or the call before was a slow one), and
// corrections follow them. A scheduler that asks what one more token costs must not be told "less than
// nothing": at the points of a correction's axis prices are the rising ones that are nearest (isotonic
// regression: where some fall, they share their mean), and between two points they stay between these.
class MonotonePrice {
 public:
  // No points: every price is left as it is.
  MonotonePrice() = default;
  // `points`: sizes, ascending. `price`: seconds of a size.
  template <typename Price>
  MonotonePrice(std::span<const double> points, const Price& price) : points_(points.begin(), points.end()) {
    // Pools of neighbours whose prices fell, each with its mean and its number of points.
    std::vector<std::pair<double, double>> pools;
    for (const double point : points_) {
      pools.emplace_back(price(point), 1);
      while (pools.size() > 1 && pools[pools.size() - 2].first > pools.back().first) {
        const auto [seconds, count] = pools.back();
        pools.pop_back();
        auto& [mean, held] = pools.back();
        mean = (mean * held + seconds * count) / (held + count);
        held += count;
      }
    }
    for (const auto& [mean, held] : pools) least_.insert(least_.end(), static_cast<std::size_t>(held), mean);
  }

  // Seconds of `size`, whose own price is `seconds`.
  double operator()(double size, double seconds) const {
    const auto above =
        static_cast<std::size_t>(std::upper_bound(points_.begin(), points_.end(), size) - points_.begin());
    if (above < points_.size()) seconds = std::min(seconds, least_[above]);
    return above > 0 ? std::max(seconds, least_[above - 1]) : seconds;
  }

 private:
  std::vector<double> points_;
  std::vector<double> least_;  // seconds at each of them
};

// One for each shape of an operator, made when the shape is first priced.
class MonotonePrices {
 public:
  using Shape = std::array<std::uint64_t, 6>;  // whatever tells shapes apart

  template <typename Price>
  const MonotonePrice& of(const Shape& shape, std::span<const double> points, const Price& price) {
    const auto found = prices_.find(shape);
    if (found != prices_.end()) return found->second;
    return prices_.emplace(shape, MonotonePrice(points, price)).first->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const Shape& shape) const {
      std::size_t sum = 0;
      for (const std::uint64_t value : shape)
        sum = (sum ^ value) * 0x9e3779b97f4a7c15U + (sum >> 29U);  // Knuth's multiplier
      return sum;
    }
  };
  std::unordered_map<Shape, MonotonePrice, Hash> prices_;
};

// DeepEP's classes have defaults of their own.
OperatorCoefficients operator_coefficients(const proto::HardwareProfile& profile,
                                           std::string_view operator_class);
// The board's power limit (rank/llm/modeled_forward.h): `compute` is the share of the dense rate that
// matrix products sustain, `fixed_seconds` what a pass may be ahead of it, `overlap` what each second of
// collectives adds to that. A profile without these classes has no limit. `served` is the share that they
// reach in a pass of more than 256 rows, where benchmarks of the kernel alone say less.
inline constexpr std::string_view kPowerClass = "power";         // 16 bit
inline constexpr std::string_view kPowerFp8Class = "power.fp8";  // its `compute` only, where both are known
// FlashInfer's TensorRT-LLM products of fp8 in blocks. Small ones wait for their weights as DeepGEMM's do;
// the class says with `compute` only what share of the dense rate large ones reach.
inline constexpr std::string_view kTrtllmBlockClass = "gemm.fp8_block.flashinfer_trtllm";
// `profile` with these products in place of DeepGEMM's (SGLang's --fp8-gemm-backend flashinfer_trtllm);
// false: it says nothing of them.
bool use_trtllm_blocks(proto::HardwareProfile& profile);
inline constexpr std::string_view kCompressedClass = "gemm.dsv4", kCompressedFp8Class = "gemm.dsv4_fp8_block";
// Names of OperatorEfficiency.operator_class but for attention.
std::span<const std::string_view> operator_classes();

// An operator class as a profile has it.
struct PricedClass {
  OperatorCoefficients coefficients;
  Corrections corrections;
  std::vector<double> points;  // of the corrections' axes of the size that prices must not fall along
};

// Of one thread: shapes that were priced once are remembered.
class OperatorCosts {
 public:
  explicit OperatorCosts(const proto::HardwareProfile& profile);

  // C[m, n] = A[m, k] B[k, n], C in 16 bit.
  KernelCost gemm(double m, std::uint64_t n, std::uint64_t k, const WeightFormat& weight = {}) const;
  // `hot`: operands lie in the L2, as a benchmark's may that calls one product again and again.
  KernelCost gemm(MatrixClass kernel, double m, std::uint64_t n, std::uint64_t k, const WeightFormat& weight,
                  bool hot = false) const;
  // Seconds of C = A B in fp32 on CUDA cores; 0: not known of this GPU.
  double fp32_product(double m, double n, double k) const;
  // The kernel of a model's experts on this GPU, --moe-runner-backend auto.
  MatrixClass experts(TrtllmExperts chosen, const RoutedExperts& experts,
                      const WeightFormat& weight = {}) const;
  KernelCost moe(MatrixClass kernel, const RoutedExperts& experts, const WeightFormat& weight = {}) const;
  // SGLang's custom all-reduce where uses_custom_all_reduce(), NCCL's ring else, over nodes if need be.
  KernelCost all_reduce(double bytes, std::uint32_t gpus) const;
  // SGLang's conditions: 2, 4, 6 or 8 GPUs, messages up to 8 MiB, and NVLink between all of them unless they
  // are two. (custom_all_reduce.py, 0.5)
  bool uses_custom_all_reduce(double bytes, std::uint32_t gpus) const;
  KernelCost all_gather(double bytes_per_gpu, std::uint32_t gpus) const;
  // `bytes`: of the whole message, of which each GPU keeps its part of the sum.
  KernelCost reduce_scatter(double bytes, std::uint32_t gpus) const;
  // `bytes`: of each GPU's message, of which it keeps its own part.
  KernelCost all_to_all(double bytes, std::uint32_t gpus) const;
  // Nodes that as many ranks, one after the other, stand on: 1 without a network.
  std::uint32_t nodes(std::uint32_t gpus) const;
  // Bytes that one GPU's share of a collective puts on the network: of an all-reduce of `bytes`, of an
  // all-gather that ends with, or a reduce-scatter that begins with, `bytes`. 0 within a node.
  double all_reduce_network(double bytes, std::uint32_t gpus) const;
  double gather_network(double bytes, std::uint32_t gpus) const;
  // From a GPU of one node to one of another.
  KernelCost network_send(double bytes) const;
  // expert_exchange() of ranks on `nodes` nodes (1: as below), `network` bytes of which each GPU sends to
  // other nodes; the kernels for throughput pass a token on to its own node's ranks in the same way.
  KernelCost expert_exchange(double bytes, double network, std::uint32_t nodes, bool low_latency) const;
  // From one GPU to another: as NCCL's all-to-all of two, which is made of such sends.
  KernelCost send(double bytes) const;
  // One direction of DeepEP's all-to-all, `bytes` leaving each GPU, by its kernels for throughput or for low
  // latency. DeepEP's own figures (docs/legacy.md: H800 with 200 GB/s of NVLink, 8 ranks, 7,168 wide, 8
  // experts a token: 153 GB/s; low latency 98 and 127 GB/s) give the fractions of the link; launches and
  // latency are not measured here.
  KernelCost expert_exchange(double bytes, bool low_latency) const;
  // Bytes that one GPU of the group sends in all_reduce(): the whole message to each peer in the custom
  // kernel's one-shot form (two GPUs, or below 512 KiB on up to 4 and 256 KiB on up to 8), else a
  // reduce-scatter and an all-gather.
  double all_reduce_sent(double bytes, std::uint32_t gpus) const;
  // A product of DeepSeek V4's attention, in 16 bit or fp8 blocks: their inputs are rounded by the kernels
  // before them and some run beside each other, so that they cost less than one that is called alone. Classes
  // kCompressedClass; where a profile has none, as gemm() has it.
  KernelCost compressed_product(double m, std::uint64_t n, std::uint64_t k, const WeightFormat& weight) const;
  static KernelCost compressed_product(const OperatorCoefficients& c, const proto::HardwareProfile& profile,
                                       double m, double n, double k, bool fp8);
  // A kernel that reads and writes `bytes` in all.
  KernelCost elementwise(double bytes) const;
  // Hyper-connections around one attention or one MLP: kernels that make its input of the streams, with the
  // weights of 20 rounds of Sinkhorn's, and one that mixes what it says into them (SGLang 0.5.23,
  // kernels/ops/layernorm/mhc.py). Classes "mhc.pre", "mhc.post".
  KernelCost hyper_connections(double rows, double hidden, double streams) const;
  KernelCost hyper_connection(bool pre, double rows, double hidden, double streams) const;
  // Kernels of gated delta-nets and Kimi delta attention.
  const DeltaKernels& delta() const { return delta_; }
  // Greedy: `rows` rows of `vocabulary` logits are cast, then the largest of each is found. A profile without
  // `k_seconds`, what a block takes for each logit of its row, charges their bytes alone.
  KernelCost sampling(double rows, double vocabulary) const;

  static constexpr double kCustomAllReduceLimit = 8.0 * 1024 * 1024;  // bytes

  KernelCost custom_all_reduce(double bytes, std::uint32_t gpus) const;
  KernelCost nccl_all_reduce(double bytes, std::uint32_t gpus) const;

 private:
  struct Tile {
    double m, n;
  };
  enum class Collective : std::uint8_t {
    kCustomAllReduce,
    kNcclAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kDeepEp,
    kDeepEpLowLatency
  };
  static constexpr std::size_t kCollectives = 7;
  const PricedClass& matrix(MatrixClass kernel) const { return matrix_[static_cast<std::size_t>(kernel)]; }
  double rate(MatrixClass kernel) const;
  // `tiles_m` tiles along m of one or more products [.., k] [k, n] that move `bytes`.
  double tiles_seconds(MatrixClass kernel, double n, double k, double tiles_m, double bytes, Tile tile,
                       double hot) const;
  // The best tile's time, in the best number of parts of k.
  double product_seconds(MatrixClass kernel, double m, double n, double k, double bytes, double hot) const;
  KernelCost gemm_physics(MatrixClass kernel, double m, std::uint64_t n, std::uint64_t k,
                          const WeightFormat& weight, bool hot) const;
  KernelCost moe_physics(MatrixClass kernel, const RoutedExperts& experts, const ExpertWork& work,
                         const WeightFormat& weight) const;
  // What corrections make of the physics for as many tokens that choose evenly.
  double moe_factor(MatrixClass kernel, RoutedExperts experts, const WeightFormat& weight) const;
  static bool is_one_shot(double bytes, std::uint32_t gpus);  // of the custom all-reduce
  // Seconds before corrections, of a message of which each GPU sends `sent` bytes.
  double collective_physics(Collective kind, double bytes, std::uint32_t gpus) const;
  double sent(Collective kind, double bytes, std::uint32_t gpus) const;
  double collective_seconds(Collective kind, double bytes, std::uint32_t gpus) const;
  // An all-gather that ends with `bytes`, or the reduce-scatter that begins with them.
  KernelCost gathered(Collective kind, double bytes, std::uint32_t gpus) const;
  // Seconds of a collective that takes `within` inside a node and puts `network` bytes on each GPU's NIC.
  double across_nodes(double within, double network, std::uint32_t nodes) const;

  std::array<PricedClass, kMatrixClasses> matrix_;
  std::array<PricedClass, kCollectives> collectives_;
  OperatorCoefficients elementwise_;
  OperatorCoefficients mhc_pre_, mhc_post_;
  DeltaKernels delta_;
  std::optional<OperatorCoefficients> compressed_, compressed_fp8_;
  std::array<double, 3> rates_;  // by MatrixClassRow::Rate
  proto::HardwareProfile profile_;
  double bandwidth_;
  double link_;
  double multiprocessors_;
  bool nvlink_;
  std::uint32_t node_gpus_;  // of a group of ranks, on one node
  bool cuda_ = false;
  double fp32_flops_ = 0;  // a second, on CUDA cores; 0: not known
  mutable MonotonePrices prices_;
};

}  // namespace tpsim::rank
