#include <fmt/format.h>

#include <array>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "launch/cli/flag_values.h"
#include "launch/diffusion/pipeline_args.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::launch {
namespace {

constexpr std::uint64_t kMostGpus = 1024;
constexpr std::string_view kPrecisions[] = {"bf16", "fp16", "fp32"};

FlagSet::ReadList names(std::optional<std::vector<std::string>>& target) {
  return [&target](std::string_view, const std::vector<std::string>& values) { target = values; };
}

void declare_parallel(FlagSet& flags, PipelineArgs& args) {
  flags.group("Parallelism");
  ParallelAsked& p = args.parallel;
  flags.add_value("--num-gpus", "N", "GPUs of the deployment (default 1)", count(p.num_gpus, 1, kMostGpus));
  flags.add_value("--tp-size", "N", "GPUs that share each layer's weights (default 1)",
                  count(p.tp, 1, kMostGpus));
  flags.add_value("--sp-degree", "N", "GPUs that share a sequence (default: what others leave)",
                  count(p.sp, 1, kMostGpus));
  flags.add_value("--ulysses-degree", "N", "of them by all-to-all over heads",
                  count(p.ulysses, 1, kMostGpus));
  flags.add_value("--ring-degree", "N", "of them by keys and values passed round",
                  count(p.ring, 1, kMostGpus));
  flags.add_value("--kv-gather-degree", "N", "of them by one gather of keys and values",
                  count(p.kv_gather, 1, kMostGpus));
  flags.add_boolean("--enable-cfg-parallel",
                    "the two passes of classifier-free guidance on GPUs of their own", p.cfg_parallel);
  flags.add_value("--cfg-parallel-size", "N", "GPUs of that (1: not shared out)", count(p.cfg, 1, kMostGpus));
  flags.add_value("--dp-size,--data-parallel-size,--dp", "N",
                  "replicas, each with its share of the GPUs (default 1)", count(p.dp, 1, kMostGpus));
}

void declare_attention(FlagSet& flags, PipelineArgs& args) {
  flags.group("Attention");
  AttentionAsked& a = args.attention;
  flags.add_value("--attention-backend", "NAME",
                  "of all components, see `tpsim backends --pipeline` (default: by the GPU)",
                  text(a.backend));
  flags.add_value(
      "--component-attention-backends", "LIST",
      "of single components, or their self or cross attention: text_encoder=torch_sdpa,transformer.self=fa",
      text(a.components));
  flags.add_value("--attention-backend-config", "CONFIG",
                  "of the backend: KEY=VALUE,..., JSON, or a file of JSON or YAML", text(a.config));
  flags.add_value("--installed", "LIST",
                  "packages of attention that are there: fa,sage,... or none (default: all)",
                  [&a](std::string_view flag, const std::string& value) {
                    check_text(flag, value);
                    a.installed = {"none"};  // of SGLang's: an empty set would be all
                    if (value == "none") return;
                    const auto known = attention::diffusion_packages();
                    for (const std::string& name : split_list(value)) {
                      if (!known.contains(name)) {
                        const std::vector<std::string_view> names(known.begin(), known.end());
                        throw_user_error("{} {}: {} must be of {}, or the value none", flag, value,
                                         in_quotes(name), join_or(names));
                      }
                      a.installed->insert(name);
                    }
                  });
}

void declare_memory(FlagSet& flags, PipelineArgs& args) {
  flags.group("Memory");
  ResidencyAsked& r = args.residency;
  flags.add_value("--performance-mode,--mode", "MODE",
                  "what is chosen where nothing is said: auto, speed, memory or manual (default auto)",
                  word({"auto", "speed", "memory", "manual"}, args.performance_mode));
  flags.add_list(
      "--component-residency", "COMPONENT=MODE",
      "where weights of a component, or of dit, text_encoder, image_encoder, vae, all, stay: resident, "
      "component-offload or layerwise-offload",
      [&r](std::string_view, const std::vector<std::string>& values) { r.component_residency = values; });
  flags.add_list("--cpu-offload-components", "COMPONENT", "offloaded whole, or none",
                 names(r.cpu_offload_components));
  flags.add_list("--layerwise-offload-components,--layerwise-offload-modules", "COMPONENT",
                 "streamed layer by layer; dit, default (all but dit) and all are groups",
                 names(r.layerwise_offload_components));
  flags.add_boolean("--dit-cpu-offload", "the transformer in host memory, moved whole", r.dit_cpu_offload);
  flags.add_boolean("--dit-layerwise-offload", "the transformer in host memory, streamed",
                    r.dit_layerwise_offload);
  flags.add_boolean("--text-encoder-cpu-offload", "text encoders in host memory", r.text_encoder_cpu_offload);
  flags.add_boolean("--image-encoder-cpu-offload", "the image encoder in host memory",
                    r.image_encoder_cpu_offload);
  flags.add_boolean("--vae-cpu-offload", "the VAE in host memory", r.vae_cpu_offload);
}

void declare_execution(FlagSet& flags, PipelineArgs& args) {
  flags.group("Execution");
  flags.add_boolean("--enable-torch-compile", "compiled transformer", args.compile);
  flags.add_value("--pipeline-class-name", "CLASS",
                  "the one of model_index.json, or LTX2TwoStagePipeline, of LTX-2",
                  text(args.pipeline_class));
  flags.add_value(
      "--quality", "LEVEL",
      "lossless (default; once called extra-high) or exact, which decodes images without fused kernels",
      [&args](std::string_view flag, const std::string& value) {
        if (value == "high")
          throw_user_error("{} high: what it approximates depends on the model and is not simulated", flag);
        check_word(flag, value, {"lossless", "extra-high", "exact"});
        args.exact = value == "exact";
      });
  flags.add_boolean("--vae-tiling", "the VAE decodes tile by tile", args.vae_tiling);
  flags.add_boolean("--vae-config.use-parallel-decode",
                    "the GPUs of a request share decoding by strips of rows, where SGLang's VAE can (default "
                    "true)",
                    args.vae_strips);
  flags.add_value("--dit-precision", "TYPE",
                  "of the transformer: bf16, fp16 or fp32 (default: the pipeline's)",
                  word({std::begin(kPrecisions), std::end(kPrecisions)}, args.dit_precision));
  flags.add_value(
      "--quantization", "METHOD",
      "of the transformer's products: fp8, rounded as it is loaded, inputs by tokens (default: none)",
      word({"fp8"}, args.quantization));
  for (const char* const name : {"--transformer-path", "--transformer-weights-path"}) {
    flags.add_value(
        name, "CHECKPOINT",
        "of quantised weights of the transformer, in the format that its name says: FP8 or NVFP4",
        [&args](std::string_view flag, const std::string& value) {
          args.checkpoint = value;
          if (quantised_by_name(value).empty())
            throw_user_error(
                "{} {}: of other checkpoints of a transformer those are simulated whose name says how they "
                "are quantised, FP8 or NVFP4",
                flag, value);
        });
  }
  flags.add_list("--text-encoder-precisions", "TYPE", "of the text encoders, in their order",
                 [&args](std::string_view flag, const std::vector<std::string>& values) {
                   for (const std::string& value : values)
                     check_word(flag, value, {std::begin(kPrecisions), std::end(kPrecisions)});
                   args.text_encoder_precisions = values;
                 });
  flags.add_value("--image-encoder-precision", "TYPE", "of the image encoder",
                  word({std::begin(kPrecisions), std::end(kPrecisions)}, args.image_encoder_precision));
  flags.add_value("--vae-precision", "TYPE", "of the VAE",
                  word({std::begin(kPrecisions), std::end(kPrecisions)}, args.vae_precision));
  flags.add_value("--vae-decode-precision", "TYPE", "of its decoder",
                  word({std::begin(kPrecisions), std::end(kPrecisions)}, args.vae_decode_precision));
}

void declare_batching(FlagSet& flags, PipelineArgs& args) {
  flags.group("Batching");
  flags.add_value(
      "--batching-mode", "MODE", "dynamic, SGLang's only one",
      [](std::string_view flag, const std::string& value) { check_word(flag, value, {"dynamic"}); });
  flags.add_value("--batching-max-size", "N", "outputs of equal shape that go together (default 1: none do)",
                  count(args.batching_max_size, 1, 4096));
  flags.add_value("--batching-delay-ms", "MS", "that the first waits for others (default 0)",
                  real(args.batching_delay_ms, 0, true, 1e9, true));
}

// "640x480", or a file, whose size is not looked at.
std::array<std::uint32_t, 2> read_image(std::string_view flag, const std::string& value) {
  check_text(flag, value);
  const std::size_t x = value.find('x');
  const bool size = x != std::string::npos && value.find_first_not_of("0123456789x") == std::string::npos;
  return size ? read_resolution(flag, value) : std::array<std::uint32_t, 2>{0, 0};
}

}  // namespace

std::array<std::uint32_t, 2> read_resolution(std::string_view flag, const std::string& value) {
  if (value == "480p") return {832, 480};  // of Wan's models, as 720p below is
  for (const Shortcut& shortcut : SamplingAsked{}.shortcuts) {
    if (shortcut.name == value) return shortcut.size;
  }
  const std::size_t x = value.find('x');
  const auto side = [&](const std::string& part) {
    if (part.empty() || part.find_first_not_of("0123456789") != std::string::npos || part.size() > 5)
      throw_user_error("{} {}: must be 480p, 720p, 1080p, 2k, 4k, one side of a square or WIDTHxHEIGHT", flag,
                       value);
    return static_cast<std::uint32_t>(parse_count(flag, part, 8, kMostPixels));
  };
  if (x == std::string::npos) return {side(value), side(value)};
  return {side(value.substr(0, x)), side(value.substr(x + 1))};
}

void declare_pipeline(FlagSet& flags, PipelineArgs& args) {
  flags.group("Deployment");
  flags.add_value(
      "--model-path,--model", "MODEL",
      "pipeline of the catalogue, its Hugging Face name, or a folder with a model_index.json (required)",
      text(args.model_path));
  flags.add_value("--hardware", "GPU", "GPU of the catalogue (required), for example h200-sxm",
                  text(args.hardware));
  declare_parallel(flags, args);
  declare_attention(flags, args);
  declare_memory(flags, args);
  declare_execution(flags, args);
  declare_batching(flags, args);
  flags.accept_flags_of(SglangProgram::kDiffusion, args.ignored);
}

void declare_sampling(FlagSet& flags, PipelineArgs& args) {
  flags.group("Request");
  SamplingAsked& s = args.sampling;
  flags.add_value("--width", "PIXELS", "of the output (default: the model's)",
                  count(s.width, 8, kMostPixels));
  flags.add_value("--height", "PIXELS", "of the output", count(s.height, 8, kMostPixels));
  for (Shortcut& shortcut : s.shortcuts)
    flags.add_switch(fmt::format("--{}", shortcut.name),
                     fmt::format("{} x {}", shortcut.size[0], shortcut.size[1]), shortcut.given);
  flags.add_value("--num-frames", "N", "of a video (default: the model's)", count(s.frames, 1, kMostFrames));
  flags.add_value("--fps", "N",
                  "frames per second of the video, of which no time depends (default: the model's)",
                  count(s.fps, 1, kMostFps));
  flags.add_value("--num-inference-steps", "N", "of the denoising loop (default: the model's)",
                  count(s.steps, 1, kMostSteps));
  flags.add_value("--guidance-scale", "X", "classifier-free guidance runs above 1 (default: the model's)",
                  real(s.guidance, 0, true, 1000, true));
  flags.add_value("--true-cfg-scale", "X", "of models whose guidance is distilled",
                  real(s.true_cfg, 0, true, 1000, true));
  flags.add_value("--negative-prompt", "TEXT", "what guidance leads away from",
                  [&s](std::string_view, const std::string&) { s.negative_prompt = true; });
  flags.add_list("--prompt", "TEXT", "one or more, one request each, in turn",
                 [&s](std::string_view, const std::vector<std::string>& values) {
                   s.prompts = static_cast<std::uint32_t>(values.size());
                 });
  flags.add_value("--num-outputs-per-prompt,--num-outputs", "N", "outputs of a prompt (default 1)",
                  count(s.outputs, 1, 1024));
  flags.add_list("--image-path,--image-paths", "IMAGE",
                 "input images: files, whose size is not looked at, or WIDTHxHEIGHT",
                 [&s](std::string_view flag, const std::vector<std::string>& values) {
                   s.images.clear();
                   for (const std::string& value : values) s.images.push_back(read_image(flag, value));
                 });
  flags.add_boolean("--adjust-frames",
                    "latent frames are a multiple of the GPUs, where a pipeline needs that (default true)",
                    s.adjust_frames);
  flags.add_switch("--num-frames-round-down", "they become fewer, not more", s.round_frames_down);
  flags.add_switch("--enable-teacache",
                   "steps like the one before are not computed: say by --computed-share how many are",
                   s.teacache);
  flags.add_boolean("--enable-cache-dit",
                    "the same by Cache-DiT (without --computed-share: as few as its defaults allow)",
                    s.cache_dit);
  flags.add_value("--computed-share", "X", "of the steps of a loop that are computed, 1 all (tpsim's own)",
                  real(s.computed_share, 0, false, 1, true));
}

void declare_report(FlagSet& flags, PipelineArgs& args) {
  flags.group("Output");
  flags.add_value("--report-dir", "DIR", "receives report.json and report.html", text(args.report_dir));
  declare_logging(flags, args);
}

std::string quantised_by_name(const std::string& checkpoint) {
  const std::string name = to_lower(checkpoint);
  for (const char* const format : {"nvfp4", "fp8"}) {
    if (name.find(format) != std::string::npos) return format;
  }
  return "";
}

void check_pipeline_args(const PipelineArgs& args) {
  if (args.model_path.empty())
    throw_user_error(
        "--model-path: is required, a pipeline of the catalogue or a folder with a model_index.json");
  if (args.hardware.empty()) throw_user_error("--hardware: is required, for example h200-sxm");
}

}  // namespace tpsim::launch
