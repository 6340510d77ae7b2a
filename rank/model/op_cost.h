// What the operators other than attention cost on one GPU.
//
// GEMM: output tiles over the multiprocessors in waves, against the bytes of the operands; the best of a few
// tile shapes, as a library would choose. MoE: the same on the experts' rows padded to whole tiles, with the
// weights of the experts that are hit. Collectives: a fixed latency and the bytes that cross the links.
// Elementwise: bytes. Coefficients are fitted to measured kernels by tests/calibration/fit_operators.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "proto/hardware.pb.h"
#include "rank/model/expert_load.h"

namespace tpsim::rank {

using attention::KernelCost;

struct OperatorCoefficients {
  double compute = 0.75;  // of the dense rate
  double memory = 0.8;    // of the memory (collectives: link) bandwidth
  double fixed_seconds = 3e-6;
  double tile_seconds = 5e-7;  // "tile_seconds": start and end of one output tile
  double overlap = 0.2;        // "overlap": share of the lesser of arithmetic and memory that is not hidden
  double fill = 2.0;           // "fill": a tile streams this x bandwidth / multiprocessors
  double per_gpu_seconds = 0;  // "per_gpu_seconds": collectives, per GPU of the group
};
OperatorCoefficients operator_coefficients(const proto::HardwareProfile& profile,
                                           const std::string& operator_class);
// Names of OperatorEfficiency.operator_class but for attention, and of their parameters.
std::span<const std::string_view> operator_classes();
std::vector<std::string_view> operator_parameter_names();
void write_operator(const OperatorCoefficients& coefficients, proto::OperatorEfficiency& out);

class OperatorCosts {
 public:
  explicit OperatorCosts(const proto::HardwareProfile& profile);

  // C[m, n] = A[m, k] B[k, n], elements of `bytes` bytes (2: bf16).
  KernelCost gemm(double m, double n, double k, double bytes) const;
  // Routed experts of one layer: gate-up and down projection, tokens of equal shares over the experts.
  // `intermediate` is this rank's share of the expert's width.
  KernelCost moe(double tokens, double hidden, double intermediate, double experts, double top_k,
                 double bytes) const;
  // The same for these rows of one rank.
  KernelCost moe(const ExpertRows& rows, double hidden, double intermediate, double bytes) const;
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

  void set_gemm(const OperatorCoefficients& c) { gemm_ = c; }
  void set_moe(const OperatorCoefficients& c) { moe_ = c; }
  void set_custom(const OperatorCoefficients& c) { custom_ = c; }
  void set_nccl(const OperatorCoefficients& c) { nccl_ = c; }
  void set_gather(const OperatorCoefficients& c) { gather_ = c; }
  KernelCost custom_all_reduce(double bytes, std::uint32_t gpus) const;
  KernelCost nccl_all_reduce(double bytes, std::uint32_t gpus) const;

 private:
  double tiles_seconds(const OperatorCoefficients& c, double n, double k, double tiles_m, double bytes,
                       double tile_m, double tile_n) const;
  OperatorCoefficients gemm_, moe_, custom_, nccl_, gather_, scatter_, all_to_all_, deepep_, low_latency_,
      elementwise_;
  double flops_;
  double bandwidth_;
  double link_;
  double multiprocessors_;
  bool nvlink_;
};

}  // namespace tpsim::rank
