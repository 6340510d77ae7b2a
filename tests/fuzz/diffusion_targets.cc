#include <array>
#include <stdexcept>
#include <string>

#include "attention/diffusion/mask_strategy.h"
#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

// `read` of every backend; what it refuses names the flag, what it takes has every parameter with a default.
template <typename Read>
void read_all(Read read) {
  for (const attention::DiffusionBackend* const backend : attention::diffusion_backends()) {
    try {
      const attention::DiffusionParameters parameters = read(*backend);
      for (const attention::DiffusionParameter& parameter : backend->parameters)
        attention::text_parameter(parameters, parameter.name);
    } catch (const UserError& error) {
      if (!std::string_view(error.what()).starts_with(attention::kDiffusionConfigFlag))
        throw std::logic_error("a complaint begins with the flag");
    }
  }
}

void read_config(std::string_view bytes) {
  read_all(
      [&](const auto& backend) { return attention::read_diffusion_parameters(backend, std::string(bytes)); });
}

void read_yaml(std::string_view bytes) {
  read_all([&](const auto& backend) {
    return attention::parse_diffusion_parameters(backend, std::string(bytes), "fuzzed.yaml");
  });
}

void read_mask(std::string_view bytes) {
  try {
    const attention::MaskStrategy mask = attention::parse_mask_strategy(std::string(bytes), "fuzzed");
    for (std::uint32_t step = 0; step < mask.steps; ++step) {
      const double share = mask.share(step, mask.layers - 1, {5, 6, 10});
      if (!(share > 0 && share <= 1)) throw std::logic_error("a window has a share of the tiles");
    }
  } catch (const UserError& error) {
    if (!std::string_view(error.what()).starts_with(attention::kDiffusionConfigFlag))
      throw std::logic_error("a complaint begins with the flag");
  }
}

constexpr std::array<FuzzTarget, 3> kTargets = {
    {{"diffusion_config", read_config}, {"diffusion_config_yaml", read_yaml}, {"diffusion_mask", read_mask}}};

}  // namespace

std::span<const FuzzTarget> diffusion_targets() { return kTargets; }

}  // namespace tpsim::fuzz
