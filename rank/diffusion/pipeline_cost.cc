#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "proto/base/error.h"
#include "rank/diffusion/calibration.h"
#include "rank/diffusion/pass_price.h"
#include "rank/diffusion/pipeline.h"
#include "rank/diffusion/pipeline_parts.h"
#include "rank/diffusion/placement.h"

namespace tpsim::rank {
namespace {

namespace constants = diffusion;

constexpr std::uint32_t kTypicalPrompt = 64;  // tokens, where an encoder does not pad
constexpr double kReferenceArea =
    1024.0 * 1024;  // that pipelines resize input images to (Qwen-Image, FLUX.2)
constexpr double kVisionPatch = 14, kMergedPatches = 4;  // of Qwen2.5-VL, a side; patches a token
constexpr std::uint32_t kRefiningSteps =
    3;                                // STAGE_2_DISTILLED_SIGMA_VALUES (configs/pipeline_configs/ltx_2.py)
constexpr double kAudioLatents = 25;  // a second (LTX-2: 16 kHz, hops of 160, 4 of them a latent)

PassSetting vae_pass(const VaeConfig& vae, const VaeRun& run, const PipelinePlan& plan) {
  PassSetting setting;
  setting.fp32 = run.bytes == 4;
  switch (vae.kind) {
    case VaeConfig::Kind::k2d:
      setting.vae =
          !run.decode || plan.exact || plan.diffusers_vae ? &constants::kVae2d : &constants::kVae2dFused;
      break;
    case VaeConfig::Kind::kWan:
      setting.vae = plan.diffusers_vae  ? &constants::kVaeWan
                    : run.channels_last ? &constants::kVaeWanLast
                                        : &constants::kVaeWanFused;
      break;
    case VaeConfig::Kind::kHunyuan:
      setting.vae = &constants::kVaeHunyuan;
      break;
    case VaeConfig::Kind::kLtx:
      setting.vae = &constants::kVaeLtx;
      break;
  }
  setting.even_channels = std::ranges::all_of(vae.decoder, [](std::uint64_t c) { return c % 128 == 0; });
  setting.launch = constants::kPlainLaunch * constants::kVaeKernels;
  return setting;
}

StageCost named(std::string name, std::string component = {}) {
  StageCost stage;
  stage.name = std::move(name);
  stage.component = std::move(component);
  return stage;
}

}  // namespace

class PipelineCost::Impl {
 public:
  Impl(const PipelineConfig& config, const PipelinePlan& plan, const proto::HardwareProfile& profile);

  GenerationCost generate(const GenerationRequest& request) const;
  StageCost forward(const std::string& component, const GenerationRequest& request, std::uint32_t step) const;
  StageCost decode(const GenerationRequest& request) const;
  StageCost encode_text(const GenerationRequest& request) const;

  struct Attentions {
    std::optional<attention::DiffusionAttention> self, cross;
    // Sparse layers share heads where the others gather keys and values (_resolve_sp_attention_mode of
    // layers/attention/layer.py).
    std::uint32_t ulysses = 1, kv_gather = 1;
  };

 private:
  PassShape shape(const TransformerConfig& t, const GenerationRequest& request) const;
  PassCost transformer_pass(const std::string& name, const GenerationRequest& request,
                            std::uint32_t step) const;
  double prompt_tokens(const GenerationRequest& request) const {
    return request.prompt_tokens > 0 ? request.prompt_tokens : kTypicalPrompt;
  }
  double vision_patches(const GenerationRequest& request) const;
  StageCost encode(const GenerationRequest& request, ComponentKind kind, std::string name) const;
  StageCost encode_images(const GenerationRequest& request) const;
  StageCost denoise(const GenerationRequest& request, double& step_seconds) const;
  PassCost vae_pass_cost(const OperatorList& list, const VaeRun& run, const LatentShape& latents,
                         double strips) const;
  void hold(StageCost& stage, std::string_view running, double live) const {
    stage.peak_bytes = std::max(stage.peak_bytes, placement_.held_bytes(running) + live);
  }
  PipelineConfig config_;
  PipelinePlan plan_;
  proto::HardwareProfile profile_;
  Placement placement_{config_, plan_};
  PassPrice price_;
  std::map<std::string, Attentions, std::less<>> attention_;
};

PipelineCost::Impl::Impl(const PipelineConfig& config, const PipelinePlan& plan,
                         const proto::HardwareProfile& profile)
    : config_(config), plan_(plan), profile_(profile), price_(profile) {
  const PipelineParts& parts = *config_.parts;
  for (const auto& [name, t] : parts.transformers) {
    if (t.heads % plan.tp != 0)
      throw_user_error("--tp-size {}: {} of {} has {} heads, which it does not divide", plan.tp, name,
                       config.name, t.heads);
    const auto chosen = plan.attention.find(name);
    if (chosen == plan.attention.end() || chosen->second.self == nullptr)
      throw_user_error("--attention-backend: none was chosen for {} of {}", name, config.name);
    Attentions& attentions = attention_[name];
    attentions.ulysses = plan.ulysses, attentions.kv_gather = plan.kv_gather;
    if (chosen->second.self->sparse) attentions.ulysses *= std::exchange(attentions.kv_gather, 1);
    if (const std::uint32_t heads = t.heads / plan.tp; heads % attentions.ulysses != 0) {
      const std::uint32_t fits = std::gcd(heads, attentions.ulysses);
      throw_user_error(
          "--ulysses-degree {}: {} of {} has {} heads{}, which it does not divide, use --ulysses-degree {} "
          "--ring-degree {}",
          attentions.ulysses, name, config.name, heads, plan.tp > 1 ? " on each GPU of --tp-size" : "", fits,
          plan.ring * (attentions.ulysses / fits));
    }
    attentions.self.emplace(profile_, *chosen->second.self, chosen->second.parameters);
    if (chosen->second.cross != nullptr) {
      const bool same = chosen->second.cross == chosen->second.self;
      attentions.cross.emplace(
          profile_, *chosen->second.cross,
          same ? chosen->second.parameters : attention::read_diffusion_parameters(*chosen->second.cross, ""));
    }
  }
}

// Of the input images, as the text encoder sees them (Qwen-Image's edit models, of which the transformer sees
// what comes out, too).
double PipelineCost::Impl::vision_patches(const GenerationRequest& request) const {
  const PipelineRow& row = *config_.parts->row;
  if (!row.needs_image || row.image_shown == 0) return 0;
  return static_cast<double>(request.images.size()) *
         std::floor(row.image_shown / kVisionPatch / kVisionPatch);
}

PassShape PipelineCost::Impl::shape(const TransformerConfig& t, const GenerationRequest& request) const {
  const PipelineParts& parts = *config_.parts;
  const LatentShape latents =
      latent_shape(parts.vae, config_.video ? request.frames : 1, request.width, request.height);
  PassShape s;
  s.batch = std::max<std::uint32_t>(1, request.outputs);
  const double columns = std::floor(latents.width / t.patch), rows = std::floor(latents.height / t.patch);
  if (columns < 1 || rows < 1)
    throw_user_error("--width {} --height {}: {} makes no token of it", request.width, request.height,
                     config_.name);
  s.tokens = latents.frames * rows * columns;
  if (config_.video)
    s.grid = {static_cast<std::uint32_t>(latents.frames), static_cast<std::uint32_t>(rows),
              static_cast<std::uint32_t>(columns)};
  const double side = parts.vae.spatial_stride * t.patch;
  if (parts.row->reference_tokens)
    s.tokens += static_cast<double>(request.images.size()) * std::floor(kReferenceArea / side / side);
  const PipelineRow& row = *parts.row;
  s.text = row.text > 0
               ? row.text
               : std::ceil((prompt_tokens(request) + row.text_extra) / row.text_multiple) * row.text_multiple;
  s.text += vision_patches(request) / kMergedPatches;
  s.image_context = row.image_tokens;
  if (t.audio_heads > 0)
    s.audio = std::ceil(kAudioLatents * request.frames / std::max<std::uint32_t>(1, config_.defaults.fps));
  const double sp = plan_.sp();
  const double own = part(s.tokens, sp);
  if (sp > 1) s.tokens = own * sp;  // padded at the end
  s.rows = own * s.batch;
  s.text_rows = (parts.family->shards_text ? part(s.text, sp) : s.text) * s.batch;
  return s;
}

PassCost PipelineCost::Impl::transformer_pass(const std::string& name, const GenerationRequest& request,
                                              std::uint32_t step) const {
  const PipelineParts& parts = *config_.parts;
  const auto found = parts.transformers.find(name);
  if (found == parts.transformers.end())
    throw_user_error("{}: {} has no such transformer", name, config_.name);
  const PassShape s = shape(found->second, request);
  OperatorList list;
  parts.family->write(found->second, s, list);
  const Attentions& attentions = attention_.at(name);
  const bool quantised = plan_.all_quantised || found == parts.transformers.begin();
  PassSetting setting{.tp = plan_.tp,
                      .ulysses = attentions.ulysses,
                      .ring = plan_.ring,
                      .kv_gather = attentions.kv_gather,
                      .weights = quantised ? plan_.weights : WeightFormat{},
                      .kept = plan_.kept,
                      .compile = plan_.compile,
                      .batch = s.batch,
                      .grid = s.grid,
                      .step = step,
                      .steps = std::max<std::uint32_t>(1, request.steps),
                      .shards_text = parts.family->shards_text,
                      .self = &*attentions.self,
                      .cross = attentions.cross ? &*attentions.cross : nullptr};
  return price_.price(list, setting);
}

StageCost PipelineCost::Impl::forward(const std::string& component, const GenerationRequest& request,
                                      std::uint32_t step) const {
  StageCost stage = named("forward", component);
  const PassCost pass = transformer_pass(component, request, step);
  placement_.run(placement_.component(component), pass, 1, stage);
  stage.peak_bytes = placement_.held_bytes(component);
  return stage;
}

StageCost PipelineCost::Impl::encode(const GenerationRequest& request, ComponentKind kind,
                                     std::string name) const {
  const PipelineParts& parts = *config_.parts;
  StageCost stage = named(std::move(name));
  double peak = 0;
  for (const PipelineComponent& c : config_.components) {
    const auto found = parts.encoders.find(c.name);
    if (c.kind != kind || found == parts.encoders.end()) continue;
    const EncoderConfig& e = found->second;
    const auto use = std::ranges::find(parts.row->encoders, c.name, &EncoderUse::component);
    double tokens = kTypicalPrompt, patches = 0;
    if (use != parts.row->encoders.end())
      tokens = use->tokens > 0 ? use->tokens : prompt_tokens(request) + use->template_tokens;
    if (e.vision_layers > 0) patches = vision_patches(request);
    tokens += patches / kMergedPatches;
    // Negative prompts are found in the encoder's cache after the first request (stages/text_encoding.py),
    // but not with the image that goes with them.
    const double passes = patches > 0 && request.guided ? 2 : 1;
    OperatorList list;
    write_encoder(e, std::max<std::uint32_t>(1, request.outputs), tokens, patches, list);
    PassSetting setting{.tp = placement_.gpus_of(c), .fp32 = c.bytes_per_parameter == 4};
    setting.issued = e.launches * (e.layers + e.vision_layers);
    setting.launch = 1;
    const PassCost pass = price_.price(list, setting);
    placement_.run(c, pass, passes, stage);
    if (!stage.component.empty()) stage.component += " ";
    stage.component += c.name;
    peak = std::max(peak, placement_.held_bytes(c.name) + list.live() * c.bytes_per_parameter);
  }
  stage.peak_bytes = peak;
  return stage;
}

StageCost PipelineCost::Impl::encode_text(const GenerationRequest& request) const {
  const PipelineRow& row = *config_.parts->row;
  const bool sees = row.needs_image && row.reference_tokens;
  return encode(request, ComponentKind::kTextEncoder, sees ? "ImageEncodingStage" : "TextEncodingStage");
}

// Strips of rows exchange their edges before each convolution, Wan's for each frame of latents.
PassCost PipelineCost::Impl::vae_pass_cost(const OperatorList& list, const VaeRun& run,
                                           const LatentShape& latents, double strips) const {
  PassCost pass = price_.price(list, vae_pass(config_.parts->vae, run, plan_));
  if (strips == 1) return pass;
  double convolutions = 0;
  for (const OperatorShare& o : pass.operators) {
    if (o.name == "convolution") convolutions += o.kernels;
  }
  const double rounds = config_.parts->vae.kind == VaeConfig::Kind::kWan ? latents.frames : 1;
  KernelCost exchange;
  exchange.seconds = constants::kStripSeconds * convolutions * rounds;
  pass.add("strips", exchange);
  pass.device += exchange.seconds;
  pass.seconds += exchange.seconds;
  return pass;
}

StageCost PipelineCost::Impl::encode_images(const GenerationRequest& request) const {
  const PipelineParts& parts = *config_.parts;
  StageCost stage = named("ImageVAEEncodingStage", parts.vae_name);
  const PipelineComponent& c = placement_.component(parts.vae_name);
  const auto run = [&](LatentShape latents, double times) {
    OperatorList list;
    const double strips = parts.vae.strip_encoder ? plan_.sp() : 1;
    latents.height = part(latents.height, strips);
    write_vae_encoder(parts.vae, 1, latents, list);
    const bool alone = plan_.num_gpus == 1 || !parts.vae.video;  // _channels_last_3d_prefix()
    const VaeRun encoding{.decode = false,
                          .bytes = c.bytes_per_parameter,
                          .channels_last = parts.vae.channels_last && alone,
                          .strips = (strips > 1)};
    placement_.run(c, vae_pass_cost(list, encoding, latents, strips), times, stage);
    const double pictures = 3.0 * request.width * request.height * request.frames * c.bytes_per_parameter;
    hold(stage, parts.vae_name, pictures + vae_live_bytes(parts.vae, latents, encoding));
  };
  if (parts.row->reference_tokens) {
    const double side = std::sqrt(kReferenceArea);
    run(latent_shape(parts.vae, 1, side, side), static_cast<double>(request.images.size()));
  } else {
    run(latent_shape(parts.vae, parts.row->encodes_frames ? request.frames : 1, request.width,
                     request.height),
        1);
  }
  return stage;
}

StageCost PipelineCost::Impl::decode(const GenerationRequest& request) const {
  const PipelineParts& parts = *config_.parts;
  StageCost stage = named("DecodingStage", parts.vae_name);
  LatentShape latents =
      latent_shape(parts.vae, config_.video ? request.frames : 1, request.width, request.height);
  const double bytes = plan_.vae_fp32 ? 4 : parts.vae_decode_bytes;
  OperatorList list;
  const double batch = std::max<std::uint32_t>(1, request.outputs);
  // should_use_spatial_shard_parallel_decode (configs/models/vaes/base.py): the GPUs of a request, a strip
  // each.
  double strips = plan_.vae_strips && parts.vae.strip_latents > 0 ? plan_.num_gpus / plan_.dp : 1;
  if (latents.height < strips ||
      std::floor(batch * latents.frames * latents.height * latents.width / strips) < parts.vae.strip_latents)
    strips = 1;
  latents.height = part(latents.height, strips);
  write_vae_decoder(parts.vae, batch, latents, list);
  const bool autocast = parts.row->autocast && !plan_.diffusers_vae;
  const VaeRun run{.bytes = bytes,
                   .channels_last = parts.vae.channels_last && !plan_.diffusers_vae,
                   .autocast = autocast && (bytes < 4),
                   .strips = (strips > 1)};
  PassCost pass = vae_pass_cost(list, run, latents, strips);
  if (parts.vae.shares_tiles && plan_.vae_strips && plan_.sp() > 1) {
    PassCost shared;  // parallel_tiled_decode (runtime/models/vaes/common.py)
    shared.add(pass, 1.0 / plan_.sp());
    pass = std::move(shared);
  }
  placement_.run(placement_.component(parts.vae_name), pass, 1, stage);
  LatentShape held = latents;
  // Tiles of 256 pixels and 16 frames (configs/models/vaes/base.py), which HunyuanVideo's and LTX-2's VAEs go
  // by unasked. What overlapping tiles compute twice is not counted: one whole decoding of HunyuanVideo was
  // measured, whose kernels wait for memory as those of tiles do not.
  if (plan_.vae_tiling || parts.vae.kind == VaeConfig::Kind::kHunyuan ||
      parts.vae.kind == VaeConfig::Kind::kLtx) {
    constexpr double kTile = 256, kTileFrames = 16;
    held.height = std::min(held.height, std::ceil(kTile / parts.vae.spatial_stride));
    held.width = std::min(held.width, std::ceil(kTile / parts.vae.spatial_stride));
    held.frames = std::min(held.frames, std::ceil(kTileFrames / parts.vae.temporal_stride) + 1);
  }
  const double picture = 3.0 * request.width * request.height * request.frames * bytes;
  hold(stage, parts.vae_name, batch * (vae_live_bytes(parts.vae, held, run) + picture));
  return stage;
}

StageCost PipelineCost::Impl::denoise(const GenerationRequest& request, double& step_seconds) const {
  const PipelineParts& parts = *config_.parts;
  StageCost stage = named("DenoisingStage");
  const std::uint32_t steps = std::max<std::uint32_t>(1, request.steps);
  const std::uint32_t skipped = steps > 1 ? std::min(parts.row->steps_skipped, steps - 1) : 0;
  const double computed = (steps - skipped) * plan_.computed_share;
  const double forwards = request.guided && plan_.cfg == 1 ? 2 : 1;
  double peak = 0, share = 1;
  std::size_t index = 0;
  for (const auto& [name, t] : parts.transformers) {
    const double own = parts.transformers.size() == 1 ? 1 : index == 0 ? parts.first_share : share;
    share -= own;
    ++index;
    // What a sparse backend leaves out depends on the step.
    const bool steady = !attention_.at(name).self->backend().sparse;
    const auto count = static_cast<std::uint32_t>(steady ? 1 : steps);
    PassCost mean;
    for (std::uint32_t step = 0; step < count; ++step)
      mean.add(transformer_pass(name, request, step), 1.0 / count);
    const double passes = computed * own * forwards;
    placement_.run(placement_.component(name), mean, passes, stage);
    OperatorList list;
    const PassShape s = shape(t, request);
    parts.family->write(t, s, list);
    peak = std::max(peak, placement_.held_bytes(name) + list.live() * kElement / plan_.tp);
    if (!stage.component.empty()) stage.component += " ";
    stage.component += name;
  }
  const std::uint32_t frames = (request.frames - 1) / parts.vae.temporal_stride + 1;
  const double latents = static_cast<double>(request.outputs) * static_cast<double>(parts.vae.latent) *
                         static_cast<double>(request.width) * request.height / parts.vae.spatial_stride /
                         parts.vae.spatial_stride * frames * kElement;
  PassCost step;
  step.host = constants::kStepLaunches * price_.launch_seconds();
  step.add("elementwise", price_.costs().elementwise(6 * latents));
  if (request.guided && plan_.cfg > 1) {
    step.add("cfg gather", price_.costs().all_gather(latents / plan_.sp(), plan_.cfg));
    step.sent = latents / plan_.sp() * (plan_.cfg - 1);
    step.host += 2 * price_.launch_seconds();
  }
  for (const OperatorShare& o : step.operators) step.device += o.seconds;
  step.seconds = std::max(step.device, step.host);
  PassCost all;
  all.operators = std::move(stage.operators);
  all.add(step, steps);
  stage.operators = std::move(all.operators);
  stage.device_seconds += step.device * steps;
  stage.host_seconds += step.host * steps;
  stage.sent_bytes += step.sent * steps;
  stage.seconds += step.seconds * steps;
  stage.peak_bytes = peak + 4 * latents;
  step_seconds = stage.seconds / steps;
  return stage;
}

GenerationCost PipelineCost::Impl::generate(const GenerationRequest& request) const {
  const PipelineParts& parts = *config_.parts;
  GenerationCost cost;
  cost.stages.push_back(encode_text(request));
  if (!request.images.empty()) {
    if (std::ranges::count(config_.components, ComponentKind::kImageEncoder, &PipelineComponent::kind) > 0)
      cost.stages.push_back(encode(request, ComponentKind::kImageEncoder, "ImageEncodingStage"));
    cost.stages.push_back(encode_images(request));
  }
  if (plan_.refines) {
    GenerationRequest half = request, whole = request;
    half.width /= 2, half.height /= 2;
    cost.stages.push_back(denoise(half, cost.step_seconds));
    whole.steps = kRefiningSteps, whole.guided = false;
    double step = 0;
    cost.stages.push_back(denoise(whole, step));
    cost.stages.back().name = "LTX2RefinementStage";
    cost.uncalibrated.emplace_back(
        "LTX2TwoStagePipeline: its upsampler and what switches its weights, a few ms, take none");
  } else {
    cost.stages.push_back(denoise(request, cost.step_seconds));
  }
  cost.stages.push_back(decode(request));
  for (const StageCost& stage : cost.stages) {
    cost.seconds += stage.seconds;
    cost.peak_bytes = std::max(cost.peak_bytes, stage.peak_bytes);
  }
  for (const auto& [name, attentions] : attention_) {
    if (!attentions.self->measured())
      cost.uncalibrated.push_back(std::string(attentions.self->backend().name) + " of " + name);
  }
  const bool hopper = profile_.architecture() == "hopper";
  if (!hopper)
    cost.uncalibrated.push_back("convolutions of " + parts.vae_name +
                                ": rates are those of Hopper, scaled by the datasheet");
  if (std::ranges::any_of(attention_, [](const auto& one) { return one.second.kv_gather > 1; }))
    cost.uncalibrated.emplace_back("--kv-gather-degree: its host time");
  if (plan_.weights.quantized())
    cost.uncalibrated.emplace_back(
        "quantised weights: products and quantising by kernels of language models");
  if (plan_.compile)
    cost.uncalibrated.emplace_back("--enable-torch-compile: a factor from FLUX.1 on an H100 (xDiT)");
  if (parts.vae.shares_tiles && plan_.sp() > 1)
    cost.uncalibrated.emplace_back("tiles of the VAE that GPUs share: evenly, without their overlaps");
  if (plan_.sp() > 2) cost.uncalibrated.emplace_back("sequence parallelism of more than two GPUs");
  return cost;
}

PipelineCost::PipelineCost(const PipelineConfig& config, const PipelinePlan& plan,
                           const proto::HardwareProfile& profile)
    : impl_(std::make_unique<Impl>(config, plan, profile)) {}
PipelineCost::~PipelineCost() = default;
GenerationCost PipelineCost::generate(const GenerationRequest& request) const {
  return impl_->generate(request);
}
StageCost PipelineCost::forward(const std::string& component, const GenerationRequest& request,
                                std::uint32_t step) const {
  return impl_->forward(component, request, step);
}
StageCost PipelineCost::decode(const GenerationRequest& request) const { return impl_->decode(request); }
StageCost PipelineCost::encode_text(const GenerationRequest& request) const {
  return impl_->encode_text(request);
}

}  // namespace tpsim::rank
