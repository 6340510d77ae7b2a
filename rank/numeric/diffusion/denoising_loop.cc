#include "rank/numeric/diffusion/denoising_loop.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

void refuse_flags(const ConfigReader& config, std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    if (config.flag(key, false))
      throw_user_error("{}: key \"{}\" is true, which is not computed; false is", config.where(), key);
  }
}

double shifted(double sigma, double shift) { return shift * sigma / (1 + (shift - 1) * sigma); }

// The logarithm of the shift by the number of tokens: calculate_shift() of pipeline_flux.py.
double mu(const ConfigReader& config, double tokens) {
  const double base = config.number_or("base_image_seq_len", 256);
  const double most = config.number_or("max_image_seq_len", 4096);
  const double from = config.real("base_shift", 0.5, -10, 10), to = config.real("max_shift", 1.15, -10, 10);
  return from + (to - from) * (tokens - base) / (most - base);
}

// Diffusers 0.42.1, scheduling_flow_match_euler_discrete.py: x += (next sigma - sigma) prediction.
class FlowEuler : public FlowScheduler {
 public:
  FlowEuler(const ConfigReader& config, std::uint32_t steps, std::uint32_t tokens,
            std::optional<double> log_shift) {
    refuse_flags(config, {"invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas",
                          "stochastic_sampling"});
    const double train = config.number_or("num_train_timesteps", 1000);
    const double shift = config.real("shift", 1, 1e-3, 1e3);
    const bool dynamic = config.flag("use_dynamic_shifting", false);
    if (dynamic && (tokens == 0 || config.text("time_shift_type", "exponential") != "exponential"))
      throw_user_error(
          "{}: key \"use_dynamic_shifting\" is true, which is computed of images, with an exponential "
          "shift alone",
          config.where());
    // The ends are shifted when the scheduler is made, and all when its steps are set.
    const double most = tokens > 0 ? 1 : shifted(1, shift);
    const double least = tokens > 0 ? 1.0 / steps : shifted(1 / train, shift);
    for (std::uint32_t i = 0; i < steps; ++i) {
      const double at = steps > 1 ? i / (steps - 1.0) : 0;
      sigmas_.push_back(shifted(most + (least - most) * at,
                                dynamic ? std::exp(log_shift ? *log_shift : mu(config, tokens)) : shift));
    }
    // Stretched to end there; one step is at 1, which cannot be.
    const double terminal = config.real("shift_terminal", 0, 0, 1);
    const double last = sigmas_.back();
    if (terminal > 0 && last < 1)
      for (double& sigma : sigmas_) sigma = 1 - (1 - sigma) * (1 - terminal) / (1 - last);
    for (const double sigma : sigmas_) timesteps_.push_back(static_cast<float>(sigma * train));
    sigmas_.push_back(0);
  }
  void step(const std::vector<float>& prediction, std::vector<float>& latents) override {
    const auto by = static_cast<float>(sigmas_.at(at_ + 1) - sigmas_[at_]);
    for (std::size_t i = 0; i < latents.size(); ++i) latents[i] += by * prediction[i];
    ++at_;
  }

 private:
  std::vector<double> sigmas_;
  std::size_t at_ = 0;
};

// UniPC of order 1 or 2 with B(h) = e^h - 1 (arXiv 2302.04867, algorithms 5 and 6, "bh2"), on the predicted
// clean latents; as Diffusers 0.42.1, scheduling_unipc_multistep.py, has it for flows: alpha = 1 - sigma.
class FlowUniPc : public FlowScheduler {
 public:
  FlowUniPc(const ConfigReader& config, std::uint32_t steps) {
    refuse_flags(config, {"use_dynamic_shifting", "use_karras_sigmas", "use_exponential_sigmas",
                          "use_beta_sigmas", "thresholding", "rescale_betas_zero_snr"});
    const auto wants = [&](const char* key, const char* value, const char* otherwise) {
      if (config.text(key, otherwise) != value)
        throw_user_error("{}: key \"{}\" must be {}: no other is computed", config.where(), key, value);
    };
    wants("prediction_type", "flow_prediction", "epsilon");
    wants("solver_type", "bh2", "bh2");
    wants("final_sigmas_type", "zero", "zero");
    if (!config.flag("use_flow_sigmas", false) || !config.flag("predict_x0", true) ||
        !config.flag("lower_order_final", true))
      throw_user_error(
          "{}: keys \"use_flow_sigmas\", \"predict_x0\" and \"lower_order_final\" must be true: no "
          "other is computed",
          config.where());
    order_ = config.number_or("solver_order", 2);
    if (order_ > 2)
      throw_user_error("{}: key \"solver_order\" is {}; 1 and 2 are computed", config.where(), order_);
    if (config.has("shift_terminal") ||
        (config.has("disable_corrector") && !config.json().at("disable_corrector").empty()))
      throw_user_error("{}: keys \"shift_terminal\" and \"disable_corrector\" are not computed",
                       config.where());
    const double train = config.number_or("num_train_timesteps", 1000);
    const double shift = config.real("flow_shift", 1, 1e-3, 1e3);
    for (std::uint32_t i = 0; i < steps; ++i) {
      double sigma = shifted(1 + (1 / train - 1) * i / steps, shift);
      if (std::abs(sigma - 1) < kLeast) sigma -= kLeast;  // whose logarithm of 1 - sigma is finite
      sigmas_.push_back(static_cast<float>(sigma));
      timesteps_.push_back(static_cast<float>(std::floor(sigma * train)));
    }
    sigmas_.push_back(0);
  }

  void step(const std::vector<float>& prediction, std::vector<float>& latents) override {
    std::vector<float> clean(latents.size());
    for (std::size_t i = 0; i < clean.size(); ++i)
      clean[i] = latents[i] - static_cast<float>(sigmas_.at(at_)) * prediction[i];
    if (at_ > 0) correct(clean, latents);
    before_ = std::exchange(clean_, std::move(clean));
    last_ = latents;
    const auto left = static_cast<std::uint32_t>(sigmas_.size() - 1 - at_);
    used_ = std::min({order_, left, static_cast<std::uint32_t>(at_) + 1});
    predict(latents);
    ++at_;
  }

 private:
  static constexpr double kLeast = 1e-6;

  double lambda(std::size_t i) const { return std::log(1 - sigmas_[i]) - std::log(sigmas_[i]); }
  // From step `from` to the next: x' = ratio x - weight (e^-h - 1) clean - …; the last step goes to sigma 0,
  // where h is infinite and e^-h 0.
  double h(std::size_t from) const { return lambda(from + 1) - lambda(from); }

  void predict(std::vector<float>& latents) const {
    const double ratio = sigmas_[at_ + 1] / sigmas_[at_], alpha = 1 - sigmas_[at_ + 1];
    const double phi = std::expm1(-h(at_));
    const double r = used_ == 2 ? (lambda(at_ - 1) - lambda(at_)) / h(at_) : 1;
    for (std::size_t i = 0; i < latents.size(); ++i) {
      const double slope = used_ == 2 ? 0.5 * (before_[i] - clean_[i]) / r : 0;
      latents[i] = static_cast<float>(ratio * last_[i] - alpha * phi * (clean_[i] + slope));
    }
  }

  // The step before again, now that the clean latents of its end are predicted, too.
  void correct(const std::vector<float>& now, std::vector<float>& latents) const {
    const std::size_t from = at_ - 1;
    const double ratio = sigmas_[at_] / sigmas_[from], alpha = 1 - sigmas_[at_];
    const double hh = -h(from), phi = std::expm1(hh);
    double r = 1, weight = 0, newest = 0.5;
    if (used_ == 2) {
      // [1 1; r 1] [weight newest] = [b1 b2]
      r = (lambda(from - 1) - lambda(from)) / h(from);
      const double phi_2 = phi / hh - 1, phi_3 = phi_2 / hh - 0.5;
      const double b1 = phi_2 / phi, b2 = phi_3 * 2 / phi;
      weight = (b1 - b2) / (1 - r);
      newest = b1 - weight;
    }
    for (std::size_t i = 0; i < latents.size(); ++i) {
      const double slope = used_ == 2 ? weight * (before_[i] - clean_[i]) / r : 0;
      latents[i] = static_cast<float>(ratio * last_[i] -
                                      alpha * phi * (clean_[i] + slope + newest * (now[i] - clean_[i])));
    }
  }

  std::vector<double> sigmas_;
  std::uint32_t order_ = 2, used_ = 1;
  std::size_t at_ = 0;
  std::vector<float> clean_, before_, last_;  // predicted by the last two steps; the latents of the last
};

}  // namespace

std::unique_ptr<FlowScheduler> make_scheduler(const ConfigReader& config, std::uint32_t steps,
                                              std::uint32_t tokens, std::optional<double> log_shift) {
  const std::string name = config.text("_class_name", "");
  if (name == "FlowMatchEulerDiscreteScheduler")
    return std::make_unique<FlowEuler>(config, steps, tokens, log_shift);
  if (name == "UniPCMultistepScheduler") return std::make_unique<FlowUniPc>(config, steps);
  throw_user_error(
      "{}: key \"_class_name\" is {}, which is not computed; FlowMatchEulerDiscreteScheduler and "
      "UniPCMultistepScheduler are",
      config.where(), name.empty() ? "missing" : name);
}

std::vector<float> denoise(const Denoisers& denoisers, FlowScheduler& scheduler, const LatentShape& shape,
                           std::vector<float> latents, const GuidedPrompt& prompt, SequenceRanks& ranks) {
  const bool guided = denoisers.first->guided(prompt.guidance);
  const std::vector<TextEmbeddings> texts = {prompt.prompt, prompt.negative};
  for (std::uint32_t step = 0; step < scheduler.timesteps().size(); ++step) {
    const float timestep = scheduler.timesteps()[step];
    const bool last = denoisers.second != nullptr && timestep < denoisers.boundary;
    const Denoiser& denoiser = last ? *denoisers.second : *denoisers.first;
    ranks.at_step(step);
    std::vector<float> input = latents;
    denoiser.give(shape, prompt.condition, input);
    input.insert(input.end(), prompt.condition.begin(), prompt.condition.end());
    std::vector<std::vector<float>> passes;
    if (ranks.split().cfg == 2) {
      passes = denoiser.forward(shape, input, timestep, prompt.guidance, texts, ranks);
    } else {
      for (std::size_t i = 0; i < (guided ? 2U : 1U); ++i)
        passes.push_back(
            denoiser.forward(shape, input, timestep, prompt.guidance, {&texts[i], 1}, ranks).front());
    }
    if (guided) denoiser.guide(shape, prompt.guidance, passes[1], passes[0]);
    scheduler.step(passes[0], latents);
  }
  ranks.at_step(0);
  denoisers.first->give(shape, prompt.condition, latents);
  return latents;
}

}  // namespace tpsim::rank
