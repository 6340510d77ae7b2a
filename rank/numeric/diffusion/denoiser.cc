#include "rank/numeric/diffusion/denoiser.h"

#include <cstddef>
#include <string>

#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::rank {

extern const DenoiserFamily kFlux2Denoiser, kFluxDenoiser, kQwenImageDenoiser, kStableDiffusion3Denoiser,
    kWanDenoiser, kZImageDenoiser;

void Denoiser::guide(const LatentShape&, float guidance, std::span<const float> other,
                     std::vector<float>& prompt) const {
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = other[i] + guidance * (prompt[i] - other[i]);
}

std::unique_ptr<Denoiser> load_denoiser(const ConfigReader& config, const TensorSource& source,
                                        std::uint32_t tp_size) {
  static const DenoiserFamily* const families[] = {
      &kWanDenoiser,   &kFluxDenoiser, &kFlux2Denoiser, &kQwenImageDenoiser, &kStableDiffusion3Denoiser,
      &kZImageDenoiser};
  const std::string name = config.text("_class_name", "");
  std::vector<std::string_view> names;
  for (const DenoiserFamily* const family : families) {
    if (family->class_name == name) return family->load(config, source, tp_size);
    names.push_back(family->class_name);
  }
  throw_user_error("{}: key \"_class_name\" is {}, which is not computed; computed are {}", config.where(),
                   name.empty() ? "missing" : name, join_or(names));
}

}  // namespace tpsim::rank
