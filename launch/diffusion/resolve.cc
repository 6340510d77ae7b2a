#include "launch/diffusion/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "attention/gpu_generation.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

// Cache-DiT as SGLang sets it up (envs.py: SGLANG_CACHE_DIT_WARMUP, SGLANG_CACHE_DIT_MC): so many steps are
// computed first, and of those after them at most so many in a row are not.
constexpr std::uint32_t kCacheDitWarmup = 4, kCacheDitInARow = 3;

double computed_share(const SamplingAsked& asked, std::uint32_t steps, std::vector<std::string>& notes) {
  const bool cache_dit = asked.cache_dit.value_or(false);
  if (asked.computed_share && !asked.teacache && !cache_dit && *asked.computed_share < 1)
    throw_user_error("--computed-share {}: is of --enable-teacache or --enable-cache-dit; name one of them",
                     format_real(*asked.computed_share));
  if (asked.teacache && cache_dit)
    throw_user_error("--enable-teacache: excludes --enable-cache-dit, use one of them");
  if (asked.computed_share) return *asked.computed_share;
  if (asked.teacache)
    throw_user_error(
        "--enable-teacache: how many steps it computes depends on the images; say so, for example "
        "--computed-share 0.6");
  if (!cache_dit || steps <= kCacheDitWarmup) return 1;
  const double computed = kCacheDitWarmup + std::ceil((steps - kCacheDitWarmup) / (kCacheDitInARow + 1.0));
  notes.push_back(
      fmt::format("--computed-share {:.2f}: the fewest steps that Cache-DiT's defaults let be computed, "
                  "{:.0f} of {}; real prompts compute more",
                  computed / steps, computed, steps));
  return computed / steps;
}

// Input images shape the output of Wan's image-to-video models: calculate_dimensions_from_area
// (stages/input_validation.py), the area being the smaller of what is asked for and the model's own.
void shape_by_image(const rank::PipelineConfig& config, rank::GenerationRequest& request,
                    std::vector<std::string>& notes) {
  const auto [width, height] = request.images.front();
  if (width == 0) {
    notes.push_back(
        "--image-path: a file's shape is not looked at, the output has the size that is asked for; "
        "give the shape as WIDTHxHEIGHT");
    request.images.front() = {request.width, request.height};
    return;
  }
  const double area = std::min<double>(static_cast<double>(request.width) * request.height,
                                       static_cast<double>(config.defaults.width) * config.defaults.height);
  const double aspect = static_cast<double>(height) / width;
  const std::uint32_t unit = config.spatial_stride * config.patch;
  const auto side = [&](double length) {
    return std::max(unit, static_cast<std::uint32_t>(std::nearbyint(length)) / unit * unit);
  };
  request.height = side(std::sqrt(area * aspect));
  request.width = side(std::sqrt(area / aspect));
  notes.push_back(fmt::format("{} x {}: the shape of the input image on the area that is asked for",
                              request.width, request.height));
}

// SamplingParams._adjust_visual_fields.
std::uint32_t adjusted_frames(const SamplingAsked& asked, const rank::PipelineConfig& config,
                              std::uint32_t frames, std::uint32_t num_gpus, std::vector<std::string>& notes) {
  if (!config.video) {
    if (frames != 1) throw_user_error("--num-frames {}: {} makes images, leave it out", frames, config.name);
    return 1;
  }
  const std::uint32_t before = frames, stride = std::max<std::uint32_t>(1, config.temporal_stride);
  const DeploymentRule& rule = deployment_rule(config);
  if (rule.shards_sequence) {
    if (config.image_input && frames % stride != 1 % stride) frames = frames / stride * stride + 1;
  } else if (num_gpus > 1 && asked.adjust_frames.value_or(true)) {
    const std::uint32_t latent = (frames - 1) / stride + 1;
    if (latent % num_gpus != 0) {
      const std::uint32_t groups = asked.round_frames_down ? std::max<std::uint32_t>(1, latent / num_gpus)
                                                           : (latent + num_gpus - 1) / num_gpus;
      frames = (groups * num_gpus - 1) * stride + 1;
    }
  }
  if (frames != before)
    notes.push_back(fmt::format("{} frames instead of {}, as SGLang adjusts them{}", frames, before,
                                rule.shards_sequence ? "" : fmt::format(" to {} GPUs", num_gpus)));
  return frames;
}

// SamplingParams.should_use_classifier_free_guidance.
bool guided(const SamplingAsked& asked, const rank::PipelineConfig& config) {
  const DeploymentRule& rule = deployment_rule(config);
  if (!asked.guidance && !asked.true_cfg && !asked.negative_prompt) return config.defaults.guided;
  const double scale = asked.true_cfg.value_or(asked.guidance.value_or(config.defaults.guidance));
  return scale > rule.guided_above && (rule.negative_prompt || asked.negative_prompt.value_or(false));
}

// Sparse layers cannot gather keys and values: SGLang stops where it was told to, and uses Ulysses where it
// chose that itself (_resolve_sp_attention_mode).
void check_gather(const ParallelAsked& asked, const rank::PipelineConfig& config,
                  const AttentionSelection& attention, std::vector<std::string>& notes) {
  for (const rank::PipelineComponent& c : config.components) {
    if (c.kind != rank::ComponentKind::kTransformer) continue;
    const attention::DiffusionBackend& backend = *attention.components.at(c.name).self;
    if (!backend.sparse) continue;
    if (asked.kv_gather)
      throw_user_error(
          "--kv-gather-degree {}: {} of {} is sparse and cannot gather keys and values, use --ulysses-degree "
          "{}",
          *asked.kv_gather, backend.name, c.name, *asked.kv_gather);
    notes.push_back(
        fmt::format("{} of {} is sparse and cannot gather keys and values: its layers use Ulysses",
                    backend.name, c.name));
  }
}

// Elements of a side of a weight, by which bytes of an element are told.
constexpr std::uint64_t kBlock = 4096;

struct QuantisedWeights {
  rank::WeightFormat format = {};  // of the transformers' products
  rank::KeptModules kept = {};
  bool all = true;    // transformers, or the first
  bool known = true;  // else what a checkpoint keeps in 16 bit is not
  // Bytes of a quantised parameter. Of NVFP4 the runtime holds scales twice, as they are stored and as the
  // kernel reads them (weight_scale, weight_scale_interleaved of layers/quantization/modelopt_quant.py).
  double bytes() const {
    const double stored = static_cast<double>(format.bytes(kBlock, kBlock)) / kBlock / kBlock;
    return format.kind == rank::WeightFormat::Kind::kNvfp4 ? stored + 1.0 / format.block_k : stored;
  }
};

// By the flags, else by the name of a checkpoint that is quantised.
QuantisedWeights weights_of(const PipelineArgs& args, const rank::PipelineConfig& config,
                            const proto::HardwareProfile& hardware) {
  using Kind = rank::WeightFormat::Kind;
  std::error_code error;
  const bool folder = std::filesystem::is_directory(args.model_path, error);
  const bool given = !args.checkpoint.empty();
  const std::string& checkpoint = given ? args.checkpoint : args.model_path;
  std::string name = given || !folder ? quantised_by_name(checkpoint) : "";
  if (!args.quantization.empty()) {
    if (!name.empty() && name != args.quantization)
      throw_user_error(
          "--quantization {}: rounds weights in 16 bit, and those of this checkpoint are in {}; leave it out",
          args.quantization, name);
    name = args.quantization;
  }
  if (name.empty()) return {};
  QuantisedWeights out{.kept = config.kept, .all = !given, .known = !args.quantization.empty()};
  for (const rank::QuantisedCheckpoint& known : config.quantised) {
    if (to_lower(known.id) != to_lower(checkpoint)) continue;
    out.kept = known.kept;
    out.known = true;
  }
  if (name == "fp8") {
    out.format = {.kind = Kind::kFp8, .activation = rank::ActivationFormat::kFp8};
    return out;
  }
  if (!hardware.architecture().starts_with("blackwell"))
    throw_user_error("--hardware {}: has no products of weights in NVFP4, which are for Blackwell",
                     hardware.name());
  out.format = {
      .kind = Kind::kNvfp4, .block_n = 1, .block_k = 16, .activation = rank::ActivationFormat::kNvfp4};
  return out;
}

// What is said of a checkpoint that the catalogue has no row of.
std::string unknown_checkpoint(const rank::PipelineConfig& config) {
  std::vector<std::string> ids;
  for (const rank::QuantisedCheckpoint& c : config.quantised) ids.push_back(c.id);
  return fmt::format(
      "all products of {}'s blocks are taken to be quantised: which of them this checkpoint keeps in 16 bit "
      "is not known{}{}",
      config.name, ids.empty() ? "" : "; it is of ", fmt::join(ids, ", "));
}

constexpr std::string_view kTwoStages = "LTX2TwoStagePipeline";
// Of a GPU's memory, from which on SGLang keeps a transformer for each stage
// (LTX2_RESIDENT_AUTO_ENABLE_MEM_GB).
constexpr double kBothStagesGb = 130;
// Else beside it what turns it into the second stage's: an adapter of rank 384 to the products of LTX-2's 48
// blocks.
constexpr std::uint64_t kStageAdapter = 3'850'000'000;

bool in_two_stages(const PipelineArgs& args, const rank::PipelineConfig& config) {
  if (args.pipeline_class.empty() || args.pipeline_class == config.class_name) return false;
  if (args.pipeline_class != kTwoStages || !config.class_name.starts_with("LTX2"))
    throw_user_error("--pipeline-class-name {}: {} is a {}; of other classes {} alone is simulated, of LTX-2",
                     args.pipeline_class, config.name, config.class_name, kTwoStages);
  return true;
}

// What would make room: the largest component that stays.
std::string remedy(const Pipeline& pipeline, const ResolvedPipeline& resolved) {
  const rank::PipelineComponent* largest = nullptr;
  const auto bytes = [](const rank::PipelineComponent& c) {
    return static_cast<double>(c.loaded) * c.bytes_per_parameter;
  };
  for (const rank::PipelineComponent& c : pipeline.config.components) {
    const auto at = resolved.plan.residency.find(c.name);
    if (at != resolved.plan.residency.end() && at->second != rank::Residency::kLayerwiseOffload &&
        (largest == nullptr || bytes(c) > bytes(*largest)))
      largest = &c;
  }
  if (largest == nullptr) return "use a smaller size, or more GPUs with --ulysses-degree";
  return fmt::format("--component-residency {}=layerwise-offload leaves {:.1f} GiB more room", largest->name,
                     static_cast<double>(bytes(*largest)) / kGib);
}

}  // namespace

Pipeline load_pipeline_of(const PipelineArgs& args) {
  Pipeline pipeline{rank::load_pipeline(args.model_path), rank::load_hardware(args.hardware)};
  const QuantisedWeights weights = weights_of(args, pipeline.config, pipeline.hardware);
  bool quantises = weights.format.quantized();
  std::size_t text_encoders = 0;
  for (rank::PipelineComponent& c : pipeline.config.components) {
    const std::size_t at = c.kind == rank::ComponentKind::kTextEncoder ? text_encoders++ : 0;
    const std::string precision =
        c.kind == rank::ComponentKind::kTransformer    ? args.dit_precision
        : c.kind == rank::ComponentKind::kImageEncoder ? args.image_encoder_precision
        : c.kind == rank::ComponentKind::kVae          ? args.vae_precision
        : c.kind == rank::ComponentKind::kTextEncoder && at < args.text_encoder_precisions.size()
            ? args.text_encoder_precisions[at]
            : "";
    if (!precision.empty()) c.bytes_per_parameter = precision == "fp32" ? 4 : 2;
    if (c.kind == rank::ComponentKind::kTransformer && quantises) {
      const double share =
          rank::quantised_parameters(pipeline.config, c, weights.kept) / static_cast<double>(c.loaded);
      c.bytes_per_parameter = share * weights.bytes() + (1 - share) * c.bytes_per_parameter;
      quantises = weights.all;
    }
  }
  if (in_two_stages(args, pipeline.config)) {
    const bool both = pipeline.hardware.memory_bytes() >= kBothStagesGb * 1e9;
    for (rank::PipelineComponent& c : pipeline.config.components)
      if (c.kind == rank::ComponentKind::kTransformer) c.loaded += both ? c.loaded : kStageAdapter;
  }
  if (!args.text_encoder_precisions.empty() && args.text_encoder_precisions.size() != text_encoders)
    throw_user_error("--text-encoder-precisions {}: must be one for each of {} text encoders of {}",
                     fmt::join(args.text_encoder_precisions, " "), text_encoders, pipeline.config.name);
  return pipeline;
}

rank::GenerationRequest resolve_request(const SamplingAsked& asked, const rank::PipelineConfig& config,
                                        std::uint32_t num_gpus, std::vector<std::string>& notes) {
  const rank::SamplingDefaults& defaults = config.defaults;
  rank::GenerationRequest request{.width = asked.width.value_or(defaults.width),
                                  .height = asked.height.value_or(defaults.height),
                                  .steps = asked.steps.value_or(defaults.steps),
                                  .outputs = asked.outputs.value_or(1),
                                  .images = asked.images};
  for (const Shortcut& shortcut : asked.shortcuts) {
    if (!shortcut.given) continue;
    request.width = shortcut.size[0], request.height = shortcut.size[1];
    break;
  }
  const std::uint32_t unit = config.spatial_stride * config.patch;
  for (const auto& [flag, side] :
       {std::pair{"--width", &request.width}, std::pair{"--height", &request.height}}) {
    if (*side < unit) throw_user_error("{} {}: must be {} or more", flag, *side, unit);
  }
  if (!request.images.empty() && !config.image_input)
    throw_user_error("--image-path: {} takes no input image, leave it out", config.name);
  if (config.image_input && config.needs_image && request.images.empty()) {
    request.images.push_back({request.width, request.height});
    notes.push_back("an input image of the output's shape, for --image-path names none");
  } else if (!request.images.empty() && deployment_rule(config).shaped_by_image) {
    shape_by_image(config, request, notes);
  }
  for (auto& image : request.images) {
    if (image[0] == 0) image = {request.width, request.height};
  }
  request.frames = adjusted_frames(asked, config, asked.frames.value_or(defaults.frames), num_gpus, notes);
  request.guided = guided(asked, config);
  return request;
}

ResolvedPipeline resolve(const PipelineArgs& args, const Pipeline& pipeline) {
  const rank::PipelineConfig& config = pipeline.config;
  const DeploymentRule& rule = deployment_rule(config);
  ResolvedPipeline out;
  out.parallel =
      resolve_parallelism(args.parallel, rule, config.defaults.guided, args.performance_mode == "manual");
  out.notes = out.parallel.notes;
  AttentionSelection attention =
      choose_attention(args.attention, config, pipeline.hardware, out.parallel.ring);
  if (out.parallel.kv_gather > 1) check_gather(args.parallel, config, attention, out.notes);
  out.attention = std::move(attention.rows);
  std::ranges::move(attention.notes, std::back_inserter(out.notes));
  const std::optional<attention::GpuGeneration> generation =
      attention::parse_gpu_generation(pipeline.hardware.architecture());
  const QuantisedWeights weights = weights_of(args, config, pipeline.hardware);
  if (!weights.known) out.notes.push_back(unknown_checkpoint(config));
  const char* const cache_dit = std::getenv("SGLANG_CACHE_DIT_ENABLED");
  const bool caches = cache_dit != nullptr && std::string_view(cache_dit) == "true";
  ResidencyChoice residency = resolve_residency(
      args.residency, {.config = &config,
                       .rule = &rule,
                       .performance_mode = args.performance_mode,
                       .memory_bytes = pipeline.hardware.memory_bytes(),
                       .cuda = generation && attention::kCudaGenerations.contains(*generation),
                       .tp = out.parallel.tp,
                       .batching_max_size = args.batching_max_size,
                       .cache_dit = caches,
                       .quantised = weights.format.quantized()});
  std::ranges::move(residency.notes, std::back_inserter(out.notes));
  SamplingAsked sampling = args.sampling;
  if (caches && !sampling.cache_dit) sampling.cache_dit = true;
  out.request = resolve_request(sampling, config, out.parallel.num_gpus, out.notes);
  const Parallelism& p = out.parallel;
  out.plan = {.num_gpus = p.num_gpus,
              .tp = p.tp,
              .ulysses = p.ulysses,
              .ring = p.ring,
              .kv_gather = p.kv_gather,
              .cfg = p.cfg,
              .dp = p.dp,
              .residency = std::move(residency.components),
              .prefetch = rule.two_transformers && args.performance_mode == "auto" ? 2U : 1U,
              .attention = std::move(attention.components),
              .weights = weights.format,
              .kept = weights.kept,
              .all_quantised = weights.all,
              .compile = args.compile.value_or(false),
              .computed_share = computed_share(sampling, out.request.steps, out.notes),
              .vae_tiling = args.vae_tiling.value_or(false),
              .vae_fp32 = args.vae_decode_precision == "fp32" ||
                          (args.vae_decode_precision.empty() && args.vae_precision == "fp32"),
              .vae_strips = args.vae_strips.value_or(true),
              .refines = in_two_stages(args, config),
              .exact = args.exact};
  constexpr std::uint32_t kUnit = 64;  // LTX2HalveResolutionStage
  if (out.plan.refines && (out.request.width % kUnit != 0 || out.request.height % kUnit != 0))
    throw_user_error("--width {} --height {}: of {} both must be multiples of {}", out.request.width,
                     out.request.height, kTwoStages, kUnit);
  if (p.cfg > 1 && !out.request.guided)
    out.notes.push_back("the request is not guided: GPUs of guidance compute the same pass twice");
  return out;
}

Generation price(const Pipeline& pipeline, const ResolvedPipeline& resolved,
                 const rank::GenerationRequest& request) {
  Generation out;
  out.cost = rank::PipelineCost(pipeline.config, resolved.plan, pipeline.hardware).generate(request);
  const double memory = pipeline.hardware.memory_bytes();
  out.fits = out.cost.peak_bytes <= memory;
  if (!out.fits) {
    const auto largest = std::ranges::max_element(out.cost.stages, {}, &rank::StageCost::peak_bytes);
    out.too_large =
        fmt::format("{} needs {:.1f} GiB of {}'s {:.1f} GiB: {}", largest->name, largest->peak_bytes / kGib,
                    pipeline.hardware.name(), memory / kGib, remedy(pipeline, resolved));
  }
  return out;
}

}  // namespace tpsim::launch
