#include "launch/diffusion/likely.h"

#include <fmt/format.h>

#include <optional>
#include <tuple>
#include <utility>

#include "launch/error_bands/error_band.h"
#include "launch/error_bands/residuals.h"

namespace tpsim::launch {

proto::LoadTraits generation_traits(const rank::PipelineConfig& config, const rank::PipelinePlan& plan,
                                    const rank::GenerationRequest& request, const std::string& hardware) {
  proto::LoadTraits traits;
  traits.set_hardware(hardware);
  traits.set_model(config.name);
  for (const rank::PipelineComponent& c : config.components) {
    if (c.kind != rank::ComponentKind::kTransformer || !traits.family().empty()) continue;
    traits.set_family(c.class_name);
    if (const auto at = plan.attention.find(c.name); at != plan.attention.end())
      traits.set_backend(std::string(at->second.self->name));
  }
  if (plan.compile) traits.set_backend(traits.backend() + " --enable-torch-compile");
  traits.set_weights(plan.weights.kind == rank::WeightFormat::Kind::kFp8     ? "fp8"
                     : plan.weights.kind == rank::WeightFormat::Kind::kNvfp4 ? "nvfp4"
                                                                             : "16bit");
  traits.set_gpus(plan.num_gpus);
  // Steps that a cache leaves out are as uncertain as drafts are.
  if (plan.computed_share < 1) traits.set_speculation("step cache");
  traits.set_arrivals("generation");
  traits.set_in_flight(request.outputs);
  const double side = static_cast<double>(config.spatial_stride) * config.patch;
  const double frames = config.video ? (request.frames - 1) / config.temporal_stride + 1 : 1;
  traits.set_input_tokens(request.width / side * request.height / side * frames);
  traits.set_output_tokens(request.steps);
  return traits;
}

nlohmann::ordered_json likely_json(const proto::LoadTraits& traits, const rank::GenerationCost& cost) {
  nlohmann::ordered_json bands = nlohmann::ordered_json::array();
  for (const auto& [figure, name, value] : {std::tuple{Figure::kLatency, "seconds", cost.seconds},
                                            std::tuple{Figure::kTpot, "step_seconds", cost.step_seconds}}) {
    const std::optional<Band> band =
        error_band(generation_residuals(), figure, traits, !cost.uncalibrated.empty());
    if (!band) continue;
    bands.push_back({{"figure", name},
                     {"low", value * band->low},
                     {"high", value * band->high},
                     {"like", to_string(band->like)},
                     {"loads", band->loads},
                     {"widened", band->widened}});
  }
  if (bands.empty()) return nullptr;
  return {{"coverage", kCoverage}, {"bands", std::move(bands)}};
}

std::string likely_text(const nlohmann::ordered_json& likely, const std::string& figure) {
  if (likely.is_null()) return "";
  for (const nlohmann::ordered_json& band : likely["bands"]) {
    if (band["figure"] == figure)
      return fmt::format("likely {:.3g} to {:.3g} s if measured", band["low"].get<double>(),
                         band["high"].get<double>());
  }
  return "";
}

}  // namespace tpsim::launch
