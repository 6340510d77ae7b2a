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

constexpr std::string_view kFlash3Classes[] = {"attention.fa3.extend"};
constexpr std::string_view kFlash2Classes[] = {"attention.flashinfer.extend"};
constexpr std::string_view kFlash4Classes[] = {"attention.fa4.extend", "attention.trtllm_mha.extend"};
constexpr std::string_view kTritonClasses[] = {"attention.triton.extend"};
constexpr std::string_view kAiterClasses[] = {"attention.aiter.extend", "attention.triton.extend"};
constexpr std::string_view kNativeClasses[] = {"attention.torch_native.extend"};

constexpr KernelOn kFlashOn[] = {
    {.generations = {kHopper}, .classes = kFlash3Classes, .tile_n = 176, .measured = true},
    {.generations = {kBlackwell}, .classes = kFlash4Classes},
    {.generations = kAllGenerations, .classes = kFlash2Classes},
};
constexpr KernelOn kTorchOn[] = {
    {.generations = {kHopper},
     .classes = kNativeClasses,
     .tile_n = 64,
     .share = 0.36,
     .corrected = false,
     .measured = true},
    {.generations = {kBlackwell}, .classes = kNativeClasses, .tile_n = 64, .share = 0.18, .corrected = false},
    {.generations = kCudaGenerations, .classes = kFlash2Classes, .tile_n = 64},
    {.generations = {kRocm}, .classes = kAiterClasses},
    {.generations = kAllGenerations, .classes = kNativeClasses},
};
constexpr KernelOn kCudnnOn[] = {
    {.generations = {kHopper},
     .classes = kNativeClasses,
     .share = 0.64,
     .corrected = false,
     .measured = true},
    {.generations = {kBlackwell}, .classes = kFlash4Classes},
    {.generations = kAllGenerations, .classes = kFlash2Classes},
};
constexpr KernelOn kTritonOn[] = {{.generations = kAllGenerations, .classes = kTritonClasses}};
constexpr KernelOn kAiterOn[] = {{.generations = kAllGenerations, .classes = kAiterClasses}};

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
  const proto::OperatorEfficiency* const entry = find_class(profile, on);
  PlanCoefficients c = coefficients_of<PlanCoefficients>(
      profile, entry == nullptr ? on.classes.front() : std::string_view(entry->operator_class()));
  if (on.share > 0) c.compute = on.share;
  c.compute *= on.rate;
  if (on.fixed_seconds >= 0) c.fixed_seconds = on.fixed_seconds;
  return c;
}

}  // namespace

constexpr DenseKernelDescription kFlashKernel = {"FlashAttention", kFlashOn};
constexpr DenseKernelDescription kTorchKernel = {"PyTorch's attention", kTorchOn};
constexpr DenseKernelDescription kCudnnKernel = {"cuDNN's attention", kCudnnOn};
constexpr DenseKernelDescription kTritonKernel = {"a Triton kernel", kTritonOn};
constexpr DenseKernelDescription kAiterKernel = {"AITER's attention", kAiterOn};

DenseKernel::DenseKernel(const proto::HardwareProfile& profile, const DenseKernelDescription& description)
    : generation_(parse_gpu_generation(profile.architecture()).value()),
      on_(&find_on(description, generation_)),
      measured_(find_class(profile, *on_) != nullptr && find_class(profile, *on_)->median_error() > 0),
      coefficients_(coefficients(profile, *on_)),
      corrections_(on_->corrected ? Corrections(find_class(profile, *on_), kPlanFeatures) : Corrections()),
      cost_(profile, coefficients_),
      multiprocessors_(profile.multiprocessors()),
      bandwidth_(profile.memory_bandwidth()) {
  if (const auto* const power = find_efficiency(profile, "power"))
    sustained_flops_ = power->compute() * profile.dense_flops_bf16();
}

KernelCost DenseKernel::part(const DiffusionCall& call, double queries, double keys, double rate) const {
  LayerShape shape;
  shape.num_q_heads = shape.num_kv_heads =
      std::max(1U, static_cast<std::uint32_t>(std::lround(call.batch * call.heads)));
  shape.head_dim = shape.v_head_dim = (call.head_dim + 7) / 8 * 8;
  ExtendPlan plan;
  plan.head_blocks = shape.num_q_heads;
  plan.rows = plan.tile_m = on_->tile_m;
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
