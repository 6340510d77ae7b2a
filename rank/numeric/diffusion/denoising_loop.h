// The denoising loop: which timesteps, and what a prediction makes of the latents. Diffusers' schedulers of
// flow matching, by class name of scheduler/scheduler_config.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rank/config/config_reader.h"
#include "rank/numeric/diffusion/denoiser.h"

namespace tpsim::rank {

class FlowScheduler {
 public:
  FlowScheduler() = default;
  FlowScheduler(const FlowScheduler&) = delete;
  FlowScheduler& operator=(const FlowScheduler&) = delete;
  virtual ~FlowScheduler() = default;
  // One for each step, as the transformer is given them.
  const std::vector<float>& timesteps() const { return timesteps_; }
  // Step after step, in order: `latents` become those of the next.
  virtual void step(const std::vector<float>& prediction, std::vector<float>& latents) = 0;

 protected:
  std::vector<float> timesteps_;
};

// FlowMatchEulerDiscreteScheduler, or UniPCMultistepScheduler with flow sigmas. Throws UserError naming the
// file and the key for what is not computed.
// `tokens`: Denoiser::schedule_tokens(); `log_shift`: Denoiser's.
std::unique_ptr<FlowScheduler> make_scheduler(const ConfigReader& config, std::uint32_t steps,
                                              std::uint32_t tokens = 0, std::optional<double> log_shift = {});

struct GuidedPrompt {
  TextEmbeddings prompt, negative;
  std::vector<float> condition = {};  // of an image, behind the latents
  float guidance = 1;                 // unless Denoiser::guided(), `negative` is not looked at
};
// One transformer, or two, of which the second is for timesteps below `boundary` (Wan 2.2).
struct Denoisers {
  const Denoiser* first = nullptr;
  const Denoiser* second = nullptr;
  float boundary = 0;
};
// Latents after all steps. Predictions are by Denoiser::guide(); with split.cfg 2 both passes are one.
// REQUIRES: split.cfg is 1, or 2 where guidance takes two passes; both transformers take the same.
std::vector<float> denoise(const Denoisers& denoisers, FlowScheduler& scheduler, const LatentShape& shape,
                           std::vector<float> latents, const GuidedPrompt& prompt, SequenceRanks& ranks);

}  // namespace tpsim::rank
