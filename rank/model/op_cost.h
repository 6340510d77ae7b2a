// What the operators other than attention cost on one GPU.
//
// GEMM: output tiles over the multiprocessors in waves, against the bytes of the operands; the best of a few
// tile shapes, as a library would choose; in 8 and 4 bit also the kernel that quantises the input, which
// the measured figures contain. MoE: both projections so, on the experts' rows padded to whole tiles, with
// the weights of the experts that are hit, and the passes over all rows between and behind them.
// Collectives: a fixed latency and the bytes that cross the links. Elementwise: bytes. Coefficients
// (proto/coefficients.h) are fitted to measured kernels by tests/calibration/fit_operators.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "attention/backend.h"
#include "proto/coefficients.h"
#include "proto/hardware.pb.h"
#include "rank/model/matrix_kernel.h"
#include "rank/model/weight_format.h"

namespace tpsim::rank {

using attention::KernelCost;

// DeepEP's classes have defaults of their own.
OperatorCoefficients operator_coefficients(const proto::HardwareProfile& profile,
                                           std::string_view operator_class);
// The board's power limit (rank/model/modeled_forward.h): `compute` is the share of the dense rate that
// matrix products sustain, `fixed_seconds` what a pass may be ahead of it, `overlap` what each second of
// collectives adds to that. A profile without these classes has no limit.
inline constexpr std::string_view kPowerClass = "power";         // 16 bit
inline constexpr std::string_view kPowerFp8Class = "power.fp8";  // its `compute` only, where both are known
// Names of OperatorEfficiency.operator_class but for attention.
std::span<const std::string_view> operator_classes();

// The routed experts of one layer, gate-up and down projection, on one rank.
struct RoutedExperts {
  double tokens = 0;  // of all ranks that share the experts
  std::uint64_t hidden = 0;
  std::uint64_t width = 0;    // of one expert on this rank
  std::uint32_t experts = 0;  // of this rank
  std::uint32_t top_k = 0;
  std::uint32_t ep_size = 1;  // ranks with other experts: this one gets 1 / ep_size of the rows
  // Rows of this rank and experts that have any, where choices are not even (rank/model/expert_load.h); 0:
  // they are.
  double rows = 0;
  double hit = 0;
  bool only_own_rows = false;  // an all-to-all brings this rank its rows, and no others
  // The rows go round the experts in turn, as in measurements, and are not each token's own choice.
  bool in_turn = false;
};

class OperatorCosts {
 public:
  explicit OperatorCosts(const proto::HardwareProfile& profile);

  // C[m, n] = A[m, k] B[k, n], C in 16 bit.
  KernelCost gemm(double m, std::uint64_t n, std::uint64_t k, const WeightFormat& weight = {}) const;
  KernelCost gemm(MatrixClass kernel, double m, std::uint64_t n, std::uint64_t k,
                  const WeightFormat& weight) const;
  // The kernel of a model's experts on this GPU, --moe-runner-backend auto.
  MatrixClass experts(std::string_view architecture, const RoutedExperts& experts,
                      const WeightFormat& weight = {}) const;
  KernelCost moe(MatrixClass kernel, const RoutedExperts& experts, const WeightFormat& weight = {}) const;
  // SGLang's custom all-reduce where uses_custom_all_reduce(), NCCL's ring else.
  KernelCost all_reduce(double bytes, std::uint32_t gpus) const;
  // SGLang's conditions: 2, 4, 6 or 8 GPUs, messages up to 8 MiB, and NVLink between all of them unless they
  // are two. (custom_all_reduce.py, 0.5)
  bool uses_custom_all_reduce(double bytes, std::uint32_t gpus) const;
  KernelCost all_gather(double bytes_per_gpu, std::uint32_t gpus) const;
  // `bytes`: of the whole message, of which each GPU keeps its part of the sum.
  KernelCost reduce_scatter(double bytes, std::uint32_t gpus) const;
  // From one GPU to another: NCCL's all-to-all, which is made of such sends.
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
  // A kernel that reads and writes `bytes` in all.
  KernelCost elementwise(double bytes) const;

  static constexpr double kCustomAllReduceLimit = 8.0 * 1024 * 1024;  // bytes

  void set_matrix(MatrixClass id, const OperatorCoefficients& c) {
    matrix_[static_cast<std::size_t>(id)] = c;
  }
  void set_custom(const OperatorCoefficients& c) { custom_ = c; }
  void set_nccl(const OperatorCoefficients& c) { nccl_ = c; }
  void set_gather(const OperatorCoefficients& c) { gather_ = c; }
  KernelCost custom_all_reduce(double bytes, std::uint32_t gpus) const;
  KernelCost nccl_all_reduce(double bytes, std::uint32_t gpus) const;

 private:
  struct Tile {
    double m, n;
  };
  // `tiles_m` tiles along m of one or more products [.., k] [k, n] that move `bytes`.
  double tiles_seconds(MatrixClass kernel, double n, double k, double tiles_m, double bytes, Tile tile) const;
  double rate(MatrixClass kernel) const;
  static bool is_one_shot(double bytes, std::uint32_t gpus);  // of the custom all-reduce

  std::array<OperatorCoefficients, kMatrixClasses> matrix_;
  OperatorCoefficients custom_, nccl_, gather_, scatter_, all_to_all_, deepep_, low_latency_, elementwise_;
  std::array<double, 3> rates_;  // by MatrixClassRow::Rate
  proto::HardwareProfile profile_;
  double bandwidth_;
  double link_;
  double multiprocessors_;
  bool nvlink_;
};

}  // namespace tpsim::rank
