#include "attention/full/full_attention.h"

#include <fmt/format.h>

#include "attention/layer_shape.h"
#include "proto/coefficients.h"

namespace tpsim::attention {
namespace {

// Patches of all sequences.
double patches_of(std::span<const SequenceGroup> sequences) {
  double length = 0;
  for (const SequenceGroup& group : sequences) length += double(group.length) * group.count;
  return length;
}

}  // namespace

std::string FullAttentionDescription::operator_class() const {
  return fmt::format("attention.{}.extend", backend);
}

FullAttention::FullAttention(const proto::HardwareProfile& profile, const FullAttentionDescription& kernel)
    : kernel_(&kernel),
      peak_flops_(profile.dense_flops_bf16()),
      generation_(parse_gpu_generation(profile.architecture()).value()),
      cost_(profile, coefficients_of<PlanCoefficients>(profile, kernel.operator_class())) {}

KernelCost FullAttention::layer(std::span<const SequenceGroup> sequences, std::uint32_t heads,
                                std::uint32_t head_dim, bool flat) const {
  LayerShape shape;
  shape.num_q_heads = shape.num_kv_heads = heads;
  shape.head_dim = shape.v_head_dim = kernel_->computed_head_dim(head_dim);
  if (flat && kernel_->packed != nullptr)
    return kernel_->packed->layer(patches_of(sequences), heads, shape.head_dim, peak_flops_);
  ExtendPlan plan;
  plan.head_blocks = heads;
  if (kernel_->set_tiles != nullptr) kernel_->set_tiles(generation_, shape.head_dim, plan);
  KernelCost cost = cost_.encode(plan, sequences, shape);
  if (kernel_->factor != nullptr) cost.seconds *= kernel_->factor(head_dim);
  return cost;
}

double FullAttention::host_seconds(std::span<const SequenceGroup> sequences, bool flat) const {
  return flat && kernel_->packed != nullptr ? kernel_->packed->host_seconds(patches_of(sequences)) : 0;
}

}  // namespace tpsim::attention
