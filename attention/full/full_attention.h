// Attention of sequences that attend to all of themselves, without a cache and without a causal mask: vision
// encoders, whose patches attend to all patches of their image or of their window (--mm-attention-backend).
//
// A kernel is one FullAttentionDescription of the list in full_attention.cc. What can be named, what SGLang
// chooses and what is refused follow from that list.
//
// Source: SGLang 0.5.23 and 0.5.12 layers/attention/vision.py (VisionAttention._determine_attention_backend
// and the classes of QKV_BACKEND_IMPL), kernels/ops/attention/prefill_attention.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "attention/backend.h"
#include "attention/gpu_generation.h"
#include "attention/plan.h"
#include "attention/plan_cost.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// How a kernel attends where a model packs its sequences into one: to the whole, under a mask of every pair.
struct MaskedAttention {
  // Of one layer over so many patches. `peak_flops`: the device's in 16 bit, a second.
  KernelCost (*layer)(double patches, std::uint32_t heads, std::uint32_t head_dim, double peak_flops);
  // What the host needs for a layer besides issuing kernels, during which the device waits.
  double (*host_seconds)(double patches);
};

// The width of a head that a kernel computes with, where it pads to multiples of 8.
constexpr std::uint32_t whole_eights(std::uint32_t head_dim) { return (head_dim + 7) / 8 * 8; }

struct FullAttentionDescription {
  std::string_view name{};  // as --mm-attention-backend spells it
  // The attention backend whose causal prefill has the efficiencies that price it; its row's "MultiModal".
  std::string_view backend{};
  GpuGenerations devices{};
  GpuGenerations default_on{};  // where SGLang takes it unasked
  std::uint32_t (*computed_head_dim)(std::uint32_t head_dim) = whole_eights;
  // Sets rows, tile_m and tile_n for heads of the width that is computed; null: 128 of each.
  void (*set_tiles)(GpuGeneration generation, std::uint32_t head_dim, ExtendPlan& plan) = nullptr;
  // Its time in times of what the prefill's efficiencies say, by the model's head width.
  double (*factor)(std::uint32_t head_dim) = nullptr;
  const MaskedAttention* packed = nullptr;  // null: packed sequences stay apart

  std::string operator_class() const;  // "attention.fa3.extend"
};

// In the order in which --mm-attention-backend's choices are named.
std::span<const FullAttentionDescription> full_attention_list();
// SGLang's default on a device.
const FullAttentionDescription& default_full_attention(GpuGeneration generation);
// By name, on a device of that generation. Throws UserError naming --mm-attention-backend where there is none
// or it does not run there.
const FullAttentionDescription& find_full_attention(std::string_view name, GpuGeneration generation,
                                                    std::string_view gpu);

// One layer of an encoder on one rank.
class FullAttention {
 public:
  FullAttention(const proto::HardwareProfile& profile, const FullAttentionDescription& kernel);

  // `flat`: the model packs all sequences into one.
  KernelCost layer(std::span<const SequenceGroup> sequences, std::uint32_t heads, std::uint32_t head_dim,
                   bool flat) const;
  // MaskedAttention::host_seconds.
  double host_seconds(std::span<const SequenceGroup> sequences, bool flat) const;

 private:
  const FullAttentionDescription* kernel_;
  double peak_flops_;
  GpuGeneration generation_;
  PlanCost cost_;
};

}  // namespace tpsim::attention
