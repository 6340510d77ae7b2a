// Attention of SGLang's diffusion pipelines (sglang.multimodal_gen 0.5.23): which backends there are, which
// one a layer gets and why, and what a layer costs.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "attention/backend.h"
#include "attention/diffusion/backend.h"
#include "attention/diffusion/call.h"
#include "attention/diffusion/parameters.h"
#include "attention/gpu_generation.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// In the order of SGLang's documentation.
std::span<const DiffusionBackend* const> diffusion_backends();
// By SGLang's name or alias (fa3, fa4 -> fa), in upper or lower case. Throws UserError naming `flag`, with
// the nearest name, or what is known and not simulated.
const DiffusionBackend& find_diffusion_backend(std::string_view flag, const std::string& name);
// Names of AttentionBackendEnum that have no file here.
std::span<const std::string_view> unsimulated_diffusion_backends();
// Packages that --installed may name, sorted.
std::set<std::string, std::less<>> diffusion_packages();
// The column of the platform matrix; none: a CPU.
std::optional<DiffusionPlatform> diffusion_platform(GpuGeneration generation);

struct DiffusionAttentionRequest {
  GpuGeneration generation{};
  std::uint32_t head_dim = 0;
  std::string dtype = "bf16";  // bf16, fp16, fp32
  bool cross = false;
  bool ring = false;                // the layer takes part in ring attention
  bool video = true;                // a grid with frames
  std::string requested;            // by role, component or --attention-backend; empty: automatic
  bool explicit_component = false;  // by --component-attention-backends
  bool auxiliary = false;           // not of the denoising transformer: what it cannot do is replaced
  std::set<std::string, std::less<>> installed;  // packages (fa, sage, ...); empty: all
  std::string flag = "--attention-backend";      // that named it, for sentences
};
struct DiffusionAttentionChoice {
  const DiffusionBackend* backend = nullptr;
  // Why this one and not the requested, or what made it the automatic choice; empty: it was asked for.
  std::string reason;
  bool replaced = false;  // another was asked for
};
// Which backend SGLang gives the layer: forced (ring), the one asked for, or the automatic one, with its
// fall-backs. Throws UserError where SGLang refuses.
//
// Source: runtime/layers/attention/selector.py (get_attn_backend), runtime/platforms/*.py
// (get_attn_backend_cls_str), runtime/server_args/server_args.py (_adjust_attention_backend), layer.py
// (USPAttention).
DiffusionAttentionChoice choose_diffusion_attention(const DiffusionAttentionRequest& request);

// A backend's layers on one GPU.
class DiffusionAttention {
 public:
  // `parameters`: of read_diffusion_parameters(). Throws UserError for a file that they name.
  DiffusionAttention(const proto::HardwareProfile& profile, const DiffusionBackend& backend,
                     const DiffusionParameters& parameters);
  // Device seconds, arithmetic, bytes and kernels of one layer. Throws UserError for a call that the backend
  // cannot serve (STA outside its sizes).
  KernelCost layer(const DiffusionCall& call) const;
  // Of the pairs of queries and keys, those that are computed.
  double share(const DiffusionCall& call) const { return price_->share(call); }
  // Something measured on this GPU stands behind it.
  bool measured() const { return price_->measured(); }
  const DiffusionBackend& backend() const { return *backend_; }

 private:
  const DiffusionBackend* backend_;
  std::unique_ptr<DiffusionPrice> price_;
};

}  // namespace tpsim::attention
