#include <algorithm>
#include <cmath>
#include <optional>

#include "proto/base/error.h"
#include "rank/diffusion/calibration.h"
#include "rank/diffusion/pass_price.h"
#include "rank/diffusion/pipeline.h"
#include "rank/diffusion/pipeline_parts.h"

namespace tpsim::rank {
namespace {

namespace constants = diffusion;

constexpr std::uint32_t kTypicalPrompt = 64;  // tokens, where an encoder does not pad
constexpr double kReferenceArea =
    1024.0 * 1024;                              // that pipelines resize input images to (Qwen-Image, FLUX.2)
constexpr double kConditionArea = 384.0 * 384;  // that Qwen-Image-Edit-Plus shows its encoder
constexpr double kAudioLatents = 25;            // a second (LTX-2: 16 kHz, hops of 160, 4 of them a latent)

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
  };

 private:
  PassShape shape(const TransformerConfig& t, const GenerationRequest& request) const;
  PassCost transformer_pass(const std::string& name, const GenerationRequest& request,
                            std::uint32_t step) const;
  double prompt_tokens(const GenerationRequest& request) const {
    return request.prompt_tokens > 0 ? request.prompt_tokens : kTypicalPrompt;
  }
  StageCost encode(const GenerationRequest& request, ComponentKind kind, std::string name) const;
  StageCost encode_images(const GenerationRequest& request) const;
  StageCost denoise(const GenerationRequest& request, double& step_seconds) const;
  PassSetting vae_setting(double bytes) const;
  Residency residency(std::string_view component) const {
    const auto at = plan_.residency.find(component);
    return at == plan_.residency.end() ? Residency::kResident : at->second;
  }
  const PipelineComponent& component(std::string_view name) const {
    return *std::ranges::find(config_.components, name, &PipelineComponent::name);
  }
  // Of one GPU.
  double weight_bytes(const PipelineComponent& c) const {
    const double cut = c.kind == ComponentKind::kTransformer || sharded(c) ? plan_.tp : 1;
    return static_cast<double>(c.parameters) * c.bytes_per_parameter / cut;
  }
  // T5 is cut over the GPUs of a plan where it streams in fp32 (Wan: on two GPUs its stage takes no longer
  // than on one, PUBLISHED.md); other text encoders only with the transformer.
  bool sharded(const PipelineComponent& c) const {
    return c.kind == ComponentKind::kTextEncoder && plan_.tp > 1;
  }
  double text_cut(const PipelineComponent& c) const {
    return c.kind == ComponentKind::kTextEncoder && c.bytes_per_parameter == 4 ? plan_.num_gpus / plan_.dp
                                                                               : 1;
  }
  // Without the tables that lie outside of the layers, which stay.
  double streamed_bytes(const PipelineComponent& c) const {
    const auto encoder = config_.parts->encoders.find(c.name);
    const double tables = encoder == config_.parts->encoders.end()
                              ? 0
                              : encoder_table_parameters(encoder->second) * c.bytes_per_parameter;
    return (weight_bytes(c) - tables) / text_cut(c);
  }
  double host_link() const {
    return constants::kHostLink / std::min(plan_.num_gpus, constants::kHostLinkSharers);
  }
  // What moving `c` adds to `passes` passes of `pass`.
  void move(const PipelineComponent& c, const PassCost& pass, double passes, StageCost& stage) const;
  double held_bytes(std::string_view running) const;
  void finish(StageCost& stage, std::string_view running, double live) const;

  PipelineConfig config_;
  PipelinePlan plan_;
  proto::HardwareProfile profile_;
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
    if (t.heads / plan.tp % plan.ulysses != 0)
      throw_user_error("--ulysses-degree {}: {} of {} has {} heads{}, which it does not divide", plan.ulysses,
                       name, config.name, t.heads / plan.tp, plan.tp > 1 ? " on each GPU of --tp-size" : "");
    const auto chosen = plan.attention.find(name);
    if (chosen == plan.attention.end() || chosen->second.self == nullptr)
      throw_user_error("--attention-backend: none was chosen for {} of {}", name, config.name);
    Attentions& attentions = attention_[name];
    attentions.self.emplace(profile_, *chosen->second.self, chosen->second.parameters);
    if (chosen->second.cross != nullptr) {
      const bool same = chosen->second.cross == chosen->second.self;
      attentions.cross.emplace(
          profile_, *chosen->second.cross,
          same ? chosen->second.parameters : attention::read_diffusion_parameters(*chosen->second.cross, ""));
    }
  }
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
  PassSetting setting{.tp = plan_.tp,
                      .ulysses = plan_.ulysses,
                      .ring = plan_.ring,
                      .kv_gather = plan_.kv_gather,
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

double PipelineCost::Impl::held_bytes(std::string_view running) const {
  double bytes = constants::kContextBytes;
  for (const PipelineComponent& c : config_.components) {
    const double weights = weight_bytes(c);
    switch (residency(c.name)) {
      case Residency::kResident:
        bytes += weights;
        break;
      case Residency::kComponentOffload:
        if (c.name == running) bytes += weights;
        break;
      case Residency::kLayerwiseOffload: {
        // One layer at work, one on its way, and what is outside of the layers.
        const double layers = streamed_bytes(c);
        bytes += weights - layers * text_cut(c);
        if (c.name == running) bytes += 2 * layers / std::max<std::uint32_t>(1, c.layers);
        break;
      }
    }
  }
  return bytes;
}

void PipelineCost::Impl::finish(StageCost& stage, std::string_view running, double live) const {
  stage.peak_bytes = held_bytes(running) + live;
}

void PipelineCost::Impl::move(const PipelineComponent& c, const PassCost& pass, double passes,
                              StageCost& stage) const {
  const double before = pass.seconds * passes;
  double seconds = before, moved = 0;
  switch (residency(c.name)) {
    case Residency::kResident:
      break;
    case Residency::kComponentOffload:  // in before and out behind
      moved = 2 * weight_bytes(c);
      seconds += moved / host_link();
      break;
    case Residency::kLayerwiseOffload: {  // every pass, a layer ahead
      const double bytes = streamed_bytes(c);
      moved = bytes * passes;
      seconds = std::max(pass.seconds, bytes / host_link()) * passes;
      break;
    }
  }
  stage.seconds += seconds;
  stage.host_link_bytes += moved;
  if (moved == 0) return;
  KernelCost offload;
  offload.seconds = seconds - before;
  offload.bytes = moved;
  PassCost sum;
  sum.operators = std::move(stage.operators);
  sum.add("offload", offload);
  stage.operators = std::move(sum.operators);
}

namespace {

void add_pass(const PassCost& pass, double passes, StageCost& stage) {
  PassCost sum;
  sum.operators = std::move(stage.operators);
  sum.add(pass, passes);
  stage.operators = std::move(sum.operators);
  stage.device_seconds += pass.device * passes;
  stage.host_seconds += pass.host * passes;
  stage.sent_bytes += pass.sent * passes;
  stage.passes += static_cast<std::uint32_t>(std::lround(passes));
}

}  // namespace

StageCost PipelineCost::Impl::forward(const std::string& component, const GenerationRequest& request,
                                      std::uint32_t step) const {
  StageCost stage = named("forward", component);
  const PassCost pass = transformer_pass(component, request, step);
  add_pass(pass, 1, stage);
  move(this->component(component), pass, 1, stage);
  finish(stage, component, 0);
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
    if (e.vision_layers > 0 && parts.row->needs_image) {
      const double area = request.images.size() > 1 || config_.class_name.ends_with("PlusPipeline")
                              ? kConditionArea
                              : kReferenceArea;
      patches = static_cast<double>(std::max<std::size_t>(1, request.images.size())) *
                std::floor(area / e.vision_patch / e.vision_patch);
      tokens += patches / (e.vision_merge * e.vision_merge);
    }
    // Negative prompts are found in the encoder's cache after the first request (stages/text_encoding.py).
    OperatorList list;
    write_encoder(e, std::max<std::uint32_t>(1, request.outputs), tokens, patches, list);
    PassSetting setting{.tp = sharded(c) ? plan_.tp : 1, .fp32 = c.bytes_per_parameter == 4};
    setting.issued = e.launches * (e.layers + e.vision_layers);
    setting.launch = 1;
    const PassCost pass = price_.price(list, setting);
    add_pass(pass, 1, stage);
    move(c, pass, 1, stage);
    if (!stage.component.empty()) stage.component += " ";
    stage.component += c.name;
    peak = std::max(peak, held_bytes(c.name) + list.live() * c.bytes_per_parameter);
  }
  stage.peak_bytes = peak;
  return stage;
}

StageCost PipelineCost::Impl::encode_text(const GenerationRequest& request) const {
  const PipelineRow& row = *config_.parts->row;
  const bool sees = row.needs_image && row.reference_tokens;
  return encode(request, ComponentKind::kTextEncoder, sees ? "ImageEncodingStage" : "TextEncodingStage");
}

PassSetting PipelineCost::Impl::vae_setting(double bytes) const {
  const VaeConfig& vae = config_.parts->vae;
  PassSetting setting{.fp32 = bytes == 4, .compile = false};
  setting.vae = vae.kind == VaeConfig::Kind::k2d ? &constants::kVae2d : &constants::kVaeVideo;
  setting.launch = constants::kPlainLaunch * constants::kVaeKernels;
  return setting;
}

StageCost PipelineCost::Impl::encode_images(const GenerationRequest& request) const {
  const PipelineParts& parts = *config_.parts;
  StageCost stage = named("ImageVAEEncodingStage", parts.vae_name);
  const PipelineComponent& c = component(parts.vae_name);
  const auto run = [&](const LatentShape& latents, double times) {
    OperatorList list;
    write_vae_encoder(parts.vae, 1, latents, list);
    const PassCost pass = price_.price(list, vae_setting(c.bytes_per_parameter));
    add_pass(pass, times, stage);
    move(c, pass, times, stage);
    finish(stage, parts.vae_name, vae_live_bytes(parts.vae, latents, false, c.bytes_per_parameter));
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
  // In parallel, each GPU decodes a strip of rows.
  const double gpus = plan_.vae_parallel ? plan_.num_gpus / plan_.dp : 1;
  latents.height = part(latents.height, gpus);
  write_vae_decoder(parts.vae, batch, latents, list);
  const PassCost pass = price_.price(list, vae_setting(bytes));
  add_pass(pass, 1, stage);
  move(component(parts.vae_name), pass, 1, stage);
  LatentShape held = latents;
  if (plan_.vae_tiling) {  // tiles of 256 pixels (configs/models/vaes/base.py)
    held.height = std::min(held.height, 256.0 / parts.vae.spatial_stride);
    held.width = std::min(held.width, 256.0 / parts.vae.spatial_stride);
  }
  finish(stage, parts.vae_name, batch * vae_live_bytes(parts.vae, held, true, bytes));
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
    // Noise above the boundary falls to the first of two; by a flow shift of 5, 42 % of the steps above
    // 0.875.
    const double own = parts.transformers.size() == 1 ? 1 : index == 0 ? 0.5 : share;
    share -= own;
    ++index;
    const auto backend = attention_.at(name).self->backend();
    const bool steady = !backend.sparse;
    const auto count = static_cast<std::uint32_t>(steady ? 1 : steps);
    PassCost mean;
    for (std::uint32_t step = 0; step < count; ++step)
      mean.add(transformer_pass(name, request, step), 1.0 / count);
    const double passes = computed * own * forwards;
    add_pass(mean, passes, stage);
    move(component(name), mean, passes, stage);
    OperatorList list;
    const PassShape s = shape(t, request);
    parts.family->write(t, s, list);
    peak = std::max(peak, held_bytes(name) + list.live() * kElement / plan_.tp);
    if (!stage.component.empty()) stage.component += " ";
    stage.component += name;
  }
  const double latents = static_cast<double>(request.outputs) * static_cast<double>(parts.vae.latent) *
                         static_cast<double>(request.width) * request.height / parts.vae.spatial_stride /
                         parts.vae.spatial_stride * ((request.frames - 1) / parts.vae.temporal_stride + 1) *
                         kElement;
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
  const std::uint32_t passes = stage.passes;
  add_pass(step, steps, stage);
  stage.passes = passes;
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
  cost.stages.push_back(denoise(request, cost.step_seconds));
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
  if (plan_.kv_gather > 1) cost.uncalibrated.emplace_back("--kv-gather-degree: its host time");
  if (plan_.compile)
    cost.uncalibrated.emplace_back("--enable-torch-compile: a factor from FLUX.1 on an H100 (xDiT)");
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
