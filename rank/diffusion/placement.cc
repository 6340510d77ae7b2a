#include "rank/diffusion/placement.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "rank/diffusion/calibration.h"
#include "rank/diffusion/pipeline_parts.h"

namespace tpsim::rank {

const PipelineComponent& Placement::component(std::string_view name) const {
  return *std::ranges::find(config_.components, name, &PipelineComponent::name);
}

Residency Placement::residency(std::string_view component) const {
  const auto at = plan_.residency.find(component);
  return at == plan_.residency.end() ? Residency::kResident : at->second;
}

const EncoderConfig* Placement::encoder(const PipelineComponent& c) const {
  const auto at = config_.parts->encoders.find(c.name);
  return at == config_.parts->encoders.end() ? nullptr : &at->second;
}

// EncoderConfig.parallel_folding_mode and encoder_folding_worthwhile() of SGLang 0.5.23
// (runtime/models/encoders/base.py, server_args.py): wide text encoders are cut over all GPUs of a replica,
// others with the transformer.
std::uint32_t Placement::gpus_of(const PipelineComponent& c) const {
  if (c.kind == ComponentKind::kTransformer) return plan_.tp;
  const EncoderConfig* const e = encoder(c);
  if (c.kind != ComponentKind::kTextEncoder || e == nullptr) return 1;
  constexpr std::uint64_t kFoldedHidden = 4096;
  const std::uint32_t replica = plan_.num_gpus / plan_.dp;
  const std::uint32_t folded = plan_.dp == 1 && replica > plan_.tp ? replica : plan_.tp == 1 ? plan_.sp() : 1;
  const bool folds =
      folded > 1 && e->hidden >= kFoldedHidden && e->heads % folded == 0 && e->ffn % folded == 0;
  return folds ? folded : plan_.tp;
}

double Placement::weight_bytes(const PipelineComponent& c) const {
  return static_cast<double>(c.loaded) * c.bytes_per_parameter / gpus_of(c);
}

// Without what lies outside of the layers, which stays: T5's table on the host unless it is cut
// (host_resident_table_names of its class; _host_resident_tables of layerwise_offload.py), all else on the
// GPU.
double Placement::streamed_bytes(const PipelineComponent& c) const {
  return weight_bytes(c) * (1 - static_cast<double>(c.outside) / static_cast<double>(c.loaded));
}

double Placement::host_link() const {
  return diffusion::kHostLink / std::min(plan_.num_gpus, diffusion::kHostLinkSharers);
}

double Placement::held_bytes(std::string_view running) const {
  double bytes = diffusion::kContextBytes;
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
        // What is outside of the layers, and while it runs those at work and as many on their way
        // (layerwise_offload.py; release_after_use() gives all of them back).
        const double layers = streamed_bytes(c);
        const EncoderConfig* const e = encoder(c);
        if (e == nullptr || e->kind != EncoderConfig::Kind::kT5 || gpus_of(c) > 1) bytes += weights - layers;
        const std::uint32_t at_once = c.kind == ComponentKind::kTransformer ? 2 * plan_.prefetch : 2;
        if (c.name == running) bytes += layers * std::min(1.0, 1.0 * at_once / std::max(1U, c.layers));
        break;
      }
    }
  }
  return bytes;
}

void Placement::run(const PipelineComponent& c, const PassCost& pass, double passes, StageCost& stage) const {
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
  PassCost sum;
  sum.operators = std::move(stage.operators);
  sum.add(pass, passes);
  stage.device_seconds += pass.device * passes;
  stage.host_seconds += pass.host * passes;
  stage.sent_bytes += pass.sent * passes;
  stage.passes += static_cast<std::uint32_t>(std::lround(passes));
  stage.seconds += seconds;
  stage.host_link_bytes += moved;
  if (moved > 0) {
    KernelCost offload;
    offload.seconds = seconds - before;
    offload.bytes = moved;
    sum.add("offload", offload);
  }
  stage.operators = std::move(sum.operators);
}

}  // namespace tpsim::rank
