#include "attention/diffusion/dense_kernel.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "attention/plan.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"
#include "proto/coefficients.h"

namespace tpsim::attention {
namespace {

using enum GpuGeneration;

constexpr std::string_view kFlash2Classes[] = {"attention.flashinfer.extend"};
constexpr std::string_view kFlash4Classes[] = {"attention.fa4.extend", "attention.trtllm_mha.extend"};

// Whole sequences with heads of 128 on Hopper, fitted to 23 passes of Wan 2.1 1.3B and FLUX.1 on an H200
// (../shared/data/diffusion: dit_forward.json, sglang_dit.json less its rope and norms) and 20 calls on an
// H100 (tests/calibration/measured/h100-sxm_diffusion.json, less 30 us of issuing each): within 3 % in the
// mean.
constexpr PlanCoefficients kHopperFlash3 = {
    .memory = 0.9, .fixed_seconds = 1.39e-5, .block_seconds = 1.59e-6, .overlap = 0.1, .tail = 0.044};
constexpr PlanCoefficients kHopperCudnn = {.memory = 0.9,
                                           .fixed_seconds = 1.07e-5,
                                           .block_seconds = 6.4e-7,
                                           .overlap = 0.1,
                                           .tail = 0.304,
                                           .head_dim_64 = 0.66};
constexpr PlanCoefficients kHopperFlash2 = {.memory = 0.9,
                                            .fixed_seconds = 1.38e-5,
                                            .block_seconds = 6e-7,
                                            .overlap = 0.1,
                                            .tail = 0.538,
                                            .head_dim_64 = 0.86};
constexpr double kHopperSm = 989.4e12 / 132;  // the dense rate of an H100's or H200's multiprocessor
// Instructions that do not read shared memory (mma.sync, FlashAttention 2) reach 62 % of the dense rate on
// Hopper (arXiv 2402.13499), however slow the tensor cores are.
constexpr double kMmaSync = 0.62;

// The dense rate of a multiprocessor of an L40S and of an RTX PRO 6000, on which classes of those generations
// were measured.
constexpr double kAdaSm = 362.05e12 / 142, kSm120Sm = 500e12 / 188;
// cuda.py: cuDNN is 1.25 to 1.5 times as fast as FlashAttention 4 on SM 10; sdpa.py: and within 2 % on
// SM 10.3.
constexpr double kFlash4 = 0.8;
// Kernels written in Triton, times FlashAttention 2: on Hopper 1.3 (arXiv 2407.08608, figure 5: 480 and 370
// TFLOP/s with heads of 128), on Ampere 0.75 (arXiv 2307.08691, figure 5: 165 and 216). On SM 12 0.6
// (encoder_attention_perf of an RTX PRO 6000: 173 TFLOP/s in the median with heads of 64).
constexpr double kHopperTriton = 1.3, kAmpereTriton = 0.75, kBlackwellTriton = 0.6;
// Of the dense rate, by no measurement: AITER's and PyTorch's (AOTriton) on CDNA, others.
constexpr PlanCoefficients kUnmeasured = {.overlap = 0.1, .tail = 0.1};
constexpr double kAiterShare = 0.4, kAotritonShare = 0.25, kOtherShare = 0.5, kAnyRate = 1e18;

constexpr KernelOn kFlashOn[] = {
    {.generations = {kHopper},
     .own = &kHopperFlash3,
     .sm_flops = 0.783 * kHopperSm,
     .most = 0.9,
     .sustained = 0.672,
     .rate_64 = 0.68,
     .rate_96 = 0.8,
     .tile_n = 176},
    {.generations = {kBlackwell},
     .classes = kFlash4Classes,
     .rate = kFlash4,
     .rate_sm103 = 1,
     .rate_64 = 1.5},
    {.generations = {kAda}, .classes = kFlash2Classes, .measured_sm_flops = kAdaSm},
    {.generations = kCudaGenerations, .classes = kFlash2Classes},
    {.generations = kAllGenerations, .own = &kUnmeasured, .sm_flops = kAnyRate, .most = kOtherShare},
};
constexpr KernelOn kTorchOn[] = {
    {.generations = {kHopper, kBlackwell},
     .own = &kHopperFlash2,
     .sm_flops = 0.379 * kHopperSm,
     .most = kMmaSync,
     .tile_n = 64},
    {.generations = {kAda}, .classes = kFlash2Classes, .measured_sm_flops = kAdaSm, .tile_n = 64},
    {.generations = {kBlackwellSm120},
     .classes = kFlash2Classes,
     .measured_sm_flops = kSm120Sm,
     .tile_n = 64},
    {.generations = kCudaGenerations, .classes = kFlash2Classes, .tile_n = 64},
    {.generations = {kRocm}, .own = &kUnmeasured, .sm_flops = kAnyRate, .most = kAotritonShare},
    {.generations = kAllGenerations, .own = &kUnmeasured, .sm_flops = kAnyRate, .most = kOtherShare},
};
constexpr KernelOn kCudnnOn[] = {
    {.generations = {kHopper},
     .own = &kHopperCudnn,
     .sm_flops = 0.679 * kHopperSm,
     .most = 0.9,
     .sustained = 0.599},
    {.generations = {kBlackwell}, .classes = kFlash4Classes},
    {.generations = {kAda}, .classes = kFlash2Classes, .measured_sm_flops = kAdaSm},
    {.generations = {kBlackwellSm120}, .classes = kFlash2Classes, .measured_sm_flops = kSm120Sm},
    {.generations = kAllGenerations, .classes = kFlash2Classes},
};
constexpr KernelOn kTritonOn[] = {
    {.generations = {kHopper},
     .own = &kHopperFlash2,
     .sm_flops = kHopperTriton * 0.379 * kHopperSm,
     .most = 0.9},
    {.generations = {kBlackwell},
     .own = &kHopperFlash2,
     .sm_flops = kBlackwellTriton * 0.379 * kHopperSm,
     .most = kMmaSync},
    {.generations = {kAda}, .classes = kFlash2Classes, .rate = kAmpereTriton, .measured_sm_flops = kAdaSm},
    {.generations = {kBlackwellSm120},
     .classes = kFlash2Classes,
     .rate = kBlackwellTriton,
     .measured_sm_flops = kSm120Sm},
    {.generations = kAllGenerations, .classes = kFlash2Classes, .rate = kAmpereTriton},
};
constexpr KernelOn kAiterOn[] = {
    {.generations = kAllGenerations, .own = &kUnmeasured, .sm_flops = kAnyRate, .most = kAiterShare}};

// FlashAttention's kernels: of the widths that it has, the least that holds a head.
std::uint32_t computed_width(std::uint32_t head_dim) {
  for (const std::uint32_t width : {64U, 96U, 128U, 192U, 256U}) {
    if (head_dim <= width) return width;
  }
  return (head_dim + 7) / 8 * 8;
}

const KernelOn& find_on(const DenseKernelDescription& description, GpuGeneration generation) {
  for (const KernelOn& on : description.on) {
    if (on.generations.contains(generation)) return on;
  }
  throw std::logic_error("no " + std::string(description.name) + " on " + std::string(to_string(generation)));
}

const proto::OperatorEfficiency* find_class(const proto::HardwareProfile& profile, const KernelOn& on) {
  for (const std::string_view name : on.classes) {
    if (const auto* const entry = find_efficiency(profile, name)) return entry;
  }
  return nullptr;
}

PlanCoefficients coefficients(const proto::HardwareProfile& profile, const KernelOn& on) {
  if (on.own != nullptr) {
    PlanCoefficients c = *on.own;
    c.compute = std::min(on.most, on.sm_flops * profile.multiprocessors() / profile.dense_flops_bf16());
    return c;
  }
  const proto::OperatorEfficiency* const entry = find_class(profile, on);
  return coefficients_of<PlanCoefficients>(
      profile, entry == nullptr ? on.classes.front() : std::string_view(entry->operator_class()));
}

// Of the dense rate, what kernels reach at most where tensor cores work at half their rate.
constexpr double kHalfRate = 0.97;

// Passes of so many seconds of attention are not slowed by the board's power limit, and from so many on
// wholly (sglang_dit.json: 0.123 s and 0.25 s of FlashAttention 3 at its full rate, of which the longer took
// 0.3).
constexpr double kUnlimited = 0.13, kLimited = 0.25;

}  // namespace

constexpr DenseKernelDescription kFlashKernel = {"FlashAttention", kFlashOn};
constexpr DenseKernelDescription kTorchKernel = {"PyTorch's attention", kTorchOn};
constexpr DenseKernelDescription kCudnnKernel = {"cuDNN's attention", kCudnnOn};
constexpr DenseKernelDescription kTritonKernel = {"a Triton kernel", kTritonOn};
constexpr DenseKernelDescription kAiterKernel = {"AITER's attention", kAiterOn};

bool is_sm103(const proto::HardwareProfile& profile) { return profile.name().ends_with("b300"); }

DenseKernel::DenseKernel(const proto::HardwareProfile& profile, const DenseKernelDescription& description)
    : generation_(parse_gpu_generation(profile.architecture()).value()),
      on_(&find_on(description, generation_)),
      cost_(profile, coefficients(profile, *on_)),
      multiprocessors_(profile.multiprocessors()),
      bandwidth_(profile.memory_bandwidth()),
      sustained_flops_(0),
      dense_flops_(profile.dense_flops_bf16()),
      rate_(on_->rate_sm103 > 0 && is_sm103(profile) ? on_->rate_sm103 : on_->rate) {
  // An H20 has power to spare.
  if (!waits_for_tensor_cores()) sustained_flops_ = on_->sustained * dense_flops_;
  const proto::OperatorEfficiency* const entry = find_class(profile, *on_);
  if (on_->measured_sm_flops > 0 && waits_for_tensor_cores())
    half_rate_ = on_->measured_sm_flops * multiprocessors_ / dense_flops_;
  corrections_ = Corrections(entry, kPlanFeatures);
  measured_ = on_->own == &kUnmeasured ? false
              : on_->own != nullptr ? profile.name().starts_with("h200") || profile.name().starts_with("h100")
                                    : entry != nullptr && entry->median_error() > 0;
}

bool DenseKernel::waits_for_tensor_cores() const {
  const double measured = on_->own != nullptr ? kHopperSm : on_->measured_sm_flops;
  return dense_flops_ / multiprocessors_ < 0.7 * measured;
}

double DenseKernel::throttled(const KernelCost& cost, const DiffusionCall& call) const {
  if (sustained_flops_ <= 0) return cost.seconds;
  const double limited =
      std::clamp((cost.seconds * call.layers - kUnlimited) / (kLimited - kUnlimited), 0.0, 1.0);
  return cost.seconds + limited * std::max(0.0, cost.flops / sustained_flops_ - cost.seconds);
}

KernelCost DenseKernel::part(const DiffusionCall& call, double queries, double keys, double rate) const {
  LayerShape shape;
  shape.num_q_heads = shape.num_kv_heads =
      std::max(1U, static_cast<std::uint32_t>(std::lround(call.batch * call.heads)));
  shape.head_dim = shape.v_head_dim = computed_width(call.head_dim);
  ExtendPlan plan;
  plan.head_blocks = shape.num_q_heads;
  plan.rows = plan.tile_m = 128;
  plan.tile_n = on_->tile_n;
  const auto q_len = static_cast<std::uint32_t>(std::max(1.0, std::round(queries)));
  const auto kv_len = static_cast<std::uint32_t>(std::max(1.0, std::round(keys)));
  KernelCost cost = cost_.extend_all(plan, q_len, kv_len, shape);
  if (!corrections_.empty()) {
    PlanFeatures features;
    features.requests = call.batch;
    features.tokens = features.rows = q_len;
    features.part = kv_len;
    features.kv_heads = call.heads;
    features.group = features.spread = 1;
    features.head_dim = shape.head_dim;
    features.element_bytes = 4;  // of q and of a key
    features.blocks = double(ceil_div(q_len, plan.tile_m)) * plan.head_blocks / multiprocessors_;
    features.l2_fill = kNothingHeld;
    cost.seconds *= corrections_.factor(features.values());
  }
  const double by_width = shape.head_dim <= 64 ? on_->rate_64 : shape.head_dim <= 96 ? on_->rate_96 : 1;
  cost.seconds = throttled(cost, call) / (rate_ * by_width);
  if (half_rate_ > 1)
    cost.seconds = std::max(cost.seconds / half_rate_, cost.flops / (kHalfRate * dense_flops_));
  cost.seconds /= rate;
  return cost;
}

KernelCost DenseKernel::traffic(double bytes, std::uint32_t launches) const {
  return {.seconds = bytes / (0.8 * bandwidth_) + 2e-6 * launches,
          .flops = 0,
          .bytes = bytes,
          .launches = launches};
}

}  // namespace tpsim::attention
