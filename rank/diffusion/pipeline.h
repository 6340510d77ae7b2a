// Diffusion pipelines: what one is (model_index.json and its components' config.json), and what a generation
// takes on one to many GPUs, as SGLang's sglang.multimodal_gen 0.5.23 runs it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/diffusion/backend.h"
#include "proto/hardware.pb.h"
#include "rank/config/weight_format.h"
#include "rank/diffusion/operators.h"

namespace tpsim::rank {

// SGLang's configs/sample/*.py of the model.
struct SamplingDefaults {
  std::uint32_t width = 0, height = 0, frames = 1, fps = 24, steps = 50;
  double guidance = 1;  // guidance_scale
  bool guided = false;  // classifier-free guidance runs by default: two forwards a step
};
enum class ComponentKind : std::uint8_t { kTextEncoder, kImageEncoder, kTransformer, kVae, kOther };
struct PipelineComponent {
  std::string name;        // of model_index.json: text_encoder_2, transformer, vae …
  std::string class_name;  // UMT5EncoderModel, WanTransformer3DModel …
  ComponentKind kind{};
  std::uint64_t parameters = 0;    // elements of its checkpoint
  std::uint64_t loaded = 0;        // of these, that SGLang's class has
  std::uint64_t outside = 0;       // of those, outside of its layers
  double bytes_per_parameter = 2;  // as SGLang loads it
  std::uint32_t layers = 0, heads = 0, head_dim = 0;
  bool cross_attention = false;  // layers attend to another sequence, too
  bool selects = true;           // layers attend through a backend that is chosen
};
// A published checkpoint with quantised weights of the pipeline's transformers, by its name.
struct QuantisedCheckpoint {
  std::string id;
  bool whole = false;  // a pipeline, all of its transformers; else the weights of `transformer`
  KeptModules kept;
};
struct PipelineParts;  // rank/diffusion/pipeline_parts.h: configurations of the components
struct PipelineConfig {
  std::string name, class_name;  // wan2.1-t2v-14b; WanPipeline
  bool video = false, image_input = false;
  bool needs_image = false;  // makes nothing without an input image
  // Frames and pixels a latent of the VAE, and latents along a side of a token.
  std::uint32_t temporal_stride = 1, spatial_stride = 8, patch = 2;
  std::vector<PipelineComponent> components;
  SamplingDefaults defaults;
  KeptModules kept;  // of transformers, by any quantisation
  std::vector<QuantisedCheckpoint> quantised;
  std::shared_ptr<const PipelineParts> parts;
};
// Throws UserError naming --model-path, or the file and key that is wrong.
PipelineConfig load_pipeline(const std::string& model_path);
// Of a transformer's parameters, those that a checkpoint quantises.
double quantised_parameters(const PipelineConfig& config, const PipelineComponent& transformer,
                            const KeptModules& kept);

struct GenerationRequest {
  std::uint32_t width = 0, height = 0, frames = 1, steps = 0;
  bool guided = false;
  std::uint32_t outputs = 1;        // of one shape, made together
  std::uint32_t prompt_tokens = 0;  // 0: what the text encoder pads to, or 64 where it does not
  std::vector<std::array<std::uint32_t, 2>> images;  // inputs, width x height
};

enum class Residency : std::uint8_t { kResident, kComponentOffload, kLayerwiseOffload };
struct PipelinePlan {
  std::uint32_t num_gpus = 1, tp = 1, ulysses = 1, ring = 1, kv_gather = 1, cfg = 1, dp = 1;
  std::uint32_t sp() const { return ulysses * ring * kv_gather; }
  std::map<std::string, Residency, std::less<>> residency;  // by component
  std::uint32_t prefetch = 1;  // layers of a transformer that are fetched while as many compute
  struct Attention {
    const attention::DiffusionBackend* self = nullptr;
    const attention::DiffusionBackend* cross = nullptr;
    attention::DiffusionParameters parameters;
  };
  std::map<std::string, Attention, std::less<>> attention;  // by component
  WeightFormat weights;       // of the transformers' products, whose inputs are quantised alike
  KeptModules kept;           // in 16 bit
  bool all_quantised = true;  // else `transformer` alone, of two
  bool compile = false;       // --enable-torch-compile
  double computed_share = 1;  // of the steps (TeaCache, Cache-DiT)
  bool vae_tiling = false, vae_fp32 = false;
  bool vae_strips = true;      // --vae-config.use-parallel-decode
  bool refines = false;        // LTX2TwoStagePipeline: a loop at half the size, then a short one at the whole
  bool exact = false;          // --quality exact: nothing that moves a rounding
  bool diffusers_vae = false;  // Diffusers' class, as some were measured, not SGLang's
};

// "self_attention", "cross_attention", "gemm", "elementwise", "ulysses all-to-all", "ring", "kv gather",
// "cfg gather", "all-reduce", "convolution", "strips", "offload".
struct OperatorShare {
  std::string name;
  double seconds = 0, flops = 0, bytes = 0, kernels = 0;
};
struct StageCost {
  std::string name;       // SGLang's: TextEncodingStage, DenoisingStage, DecodingStage …
  std::string component;  // what it runs
  double seconds = 0, device_seconds = 0, host_seconds = 0;
  double sent_bytes = 0;       // by one GPU over links
  double host_link_bytes = 0;  // between host and one GPU: offload
  double peak_bytes = 0;       // memory of one GPU
  std::uint32_t passes = 0;    // forwards on one GPU
  std::vector<OperatorShare> operators;
};
struct GenerationCost {
  std::vector<StageCost> stages;
  double seconds = 0;       // end to end
  double step_seconds = 0;  // of a denoising step, mean
  double peak_bytes = 0;
  std::vector<std::string> uncalibrated;  // what no measurement on this GPU stands behind
};

// Prices of one pipeline on one deployment. Throws UserError for a plan that the transformer cannot be cut
// by, and for shapes that a backend or the VAE cannot serve.
class PipelineCost {
 public:
  PipelineCost(const PipelineConfig& config, const PipelinePlan& plan, const proto::HardwareProfile& profile);
  ~PipelineCost();
  PipelineCost(const PipelineCost&) = delete;
  PipelineCost& operator=(const PipelineCost&) = delete;

  GenerationCost generate(const GenerationRequest& request) const;
  // One forward of a transformer at a step on one GPU of the plan.
  StageCost forward(const std::string& component, const GenerationRequest& request, std::uint32_t step) const;
  // All that the VAE's decoder takes; all that the text encoders take.
  StageCost decode(const GenerationRequest& request) const;
  StageCost encode_text(const GenerationRequest& request) const;

 private:
  class Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tpsim::rank
