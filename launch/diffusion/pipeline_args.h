// What a user may ask of a diffusion pipeline: the flags of SGLang 0.5.23's `sglang generate` and `sglang
// serve` (runtime/server_args/server_args.py, configs/sample/sampling_params.py,
// configs/pipeline_configs/base.py of sglang.multimodal_gen), and tpsim's own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/flag_set.h"
#include "launch/flags/output_flags.h"

namespace tpsim::launch {

// Who shares the GPUs; what is left out is SGLang's choice (parallelism.h).
struct ParallelAsked {
  std::uint32_t num_gpus = 1, dp = 1;
  std::optional<std::uint32_t> tp, sp, ulysses, ring, kv_gather, cfg;
  std::optional<bool> cfg_parallel;
};

// Where weights stay between passes; what is left out is SGLang's choice (residency.h).
struct ResidencyAsked {
  std::optional<bool> dit_cpu_offload, dit_layerwise_offload, text_encoder_cpu_offload,
      image_encoder_cpu_offload, vae_cpu_offload;
  std::vector<std::string> component_residency;  // COMPONENT=MODE
  std::optional<std::vector<std::string>> cpu_offload_components, layerwise_offload_components;
};

struct AttentionAsked {
  std::string backend;                                          // empty: automatic
  std::string components;                                       // --component-attention-backends, as given
  std::string config;                                           // --attention-backend-config, as given
  std::vector<std::string> sharing;                             // backends that are compared under it
  std::optional<std::set<std::string, std::less<>>> installed;  // nullopt: all packages
};

// SGLang's --720p and the like, the larger ones first: they win.
struct Shortcut {
  std::string_view name;
  std::array<std::uint32_t, 2> size;
  bool given = false;
};

// Of a side, a video, a loop and a second.
inline constexpr std::uint32_t kMostPixels = 16384, kMostFrames = 100'000, kMostSteps = 10'000,
                               kMostFps = 1000;

struct SamplingAsked {
  std::array<Shortcut, 4> shortcuts = {
      {{"4k", {3840, 2160}}, {"2k", {2560, 1440}}, {"1080p", {1920, 1080}}, {"720p", {1280, 720}}}};
  std::optional<std::uint32_t> width, height, frames, fps, steps, outputs;
  std::optional<double> guidance, true_cfg;
  std::optional<bool> negative_prompt;               // whether one is given
  std::vector<std::array<std::uint32_t, 2>> images;  // 0 x 0: a file, whose size is not looked at
  std::uint32_t prompts = 1;
  std::optional<bool> adjust_frames;  // default true
  bool round_frames_down = false;
  std::optional<double> computed_share;  // of the steps
  bool teacache = false;
  std::optional<bool> cache_dit;
};

struct PipelineArgs : OutputArgs {
  std::string model_path, hardware, performance_mode = "auto";
  ParallelAsked parallel;
  ResidencyAsked residency;
  AttentionAsked attention;
  SamplingAsked sampling;
  std::optional<bool> compile, vae_tiling, vae_strips;
  // bf16, fp16 or fp32; empty: the pipeline's.
  std::string dit_precision, image_encoder_precision, vae_precision, vae_decode_precision;
  std::vector<std::string> text_encoder_precisions;
  bool exact = false;          // --quality
  std::string pipeline_class;  // --pipeline-class-name; empty: of model_index.json
  std::string quantization;    // fp8: of weights in 16 bit; empty: none
  std::string checkpoint;      // --transformer-path, of fp8 or nvfp4 by its name; empty: none was given
  std::uint32_t batching_max_size = 1;
  double batching_delay_ms = 0;
  std::vector<std::string> resolutions;  // compare
  std::vector<std::string> ignored;      // SGLang's flags that mean nothing here
};

// The deployment, and what one request is.
void declare_pipeline(FlagSet& flags, PipelineArgs& args);
void declare_sampling(FlagSet& flags, PipelineArgs& args);
// "480p", "720p", "1080p", "1024" (a square) or "832x480". Throws UserError naming `flag`.
std::array<std::uint32_t, 2> read_resolution(std::string_view flag, const std::string& text);
// --report-dir and what is printed.
void declare_report(FlagSet& flags, PipelineArgs& args);
// How the weights of a checkpoint are quantised by its name: "fp8", "nvfp4", or "" where it says neither.
std::string quantised_by_name(const std::string& checkpoint);
// Checks what needs no model.
void check_pipeline_args(const PipelineArgs& args);

}  // namespace tpsim::launch
