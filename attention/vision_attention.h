// Attention of vision encoders: what --mm-attention-backend chooses.
//
// A kernel is the multimodal form of one backend of the support matrix and is named in that backend's row
// (BackendRow::mm_name); it runs where the backend runs. Patches attend to all patches of their image (or of
// their window), without a cache and without a causal mask.
//
// Source: SGLang 0.5.23 and 0.5.12 layers/attention/vision.py (VisionAttention._determine_attention_backend
// and the classes of QKV_BACKEND_IMPL), kernels/ops/attention/prefill_attention.py.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend_description.h"
#include "attention/gpu_generation.h"
#include "attention/layer_shape.h"
#include "attention/plan_cost.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// As --mm-attention-backend spells them, in the order of the backends.
std::vector<std::string_view> vision_backend_names();

// SGLang's default on a device.
std::string_view default_vision_backend(GpuGeneration generation);

// The row whose mm_name is `name`, on a device of that generation. Throws UserError naming
// --mm-attention-backend where there is none or it does not run there.
const BackendRow& find_vision_backend(std::string_view name, GpuGeneration generation, std::string_view gpu);

// The operator class whose efficiencies price it: those of the backend's causal prefill, and what the
// encoders of tests/calibration/measured/h200-sxm_vision.csv (an H200, SGLang 0.5.12) ask beyond them:
// nothing of fa3; of triton_attn more where heads are no multiple of 16 wide (SigLIP's 72), whose rows it
// reads unaligned; of sdpa, where a model packs its sequences into one, a mask of every pair of patches, made
// on the host and copied for each layer, with which PyTorch takes another kernel.
std::string vision_operator_class(const BackendRow& row);

// One layer of an encoder on one rank.
class VisionAttention {
 public:
  VisionAttention(const proto::HardwareProfile& profile, const BackendRow& row);

  // `flat`: the model packs all sequences into one, which sdpa attends to as a whole, under a mask.
  KernelCost layer(std::span<const SequenceGroup> sequences, std::uint32_t heads, std::uint32_t head_dim,
                   bool flat) const;
  // Seconds that the host needs for a layer besides issuing kernels, during which the device waits.
  double host_seconds(std::span<const SequenceGroup> sequences, bool flat) const;

 private:
  bool masks(bool flat) const { return name_ == "sdpa" && flat; }

  std::string_view name_;
  double peak_flops_;
  GpuGeneration generation_;
  PlanCost cost_;
};

}  // namespace tpsim::attention
