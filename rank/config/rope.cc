#include "rank/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tpsim::rank {
namespace {

// YaRN's attention factor for a scale and mscale (Peng et al. 2023, with DeepSeek's mscale).
double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

double yarn_attention_factor(const RopeConfig& config) {
  if (config.attention_factor > 0) return config.attention_factor;
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return yarn_mscale(config.factor, config.mscale) / yarn_mscale(config.factor, config.mscale_all_dim);
  return yarn_mscale(config.factor, 1.0);
}

// Llama 3.1: long wavelengths are slowed down by `factor`, short ones are kept, between them linearly.
double llama3_frequency(const RopeConfig& config, double frequency) {
  const double original = config.original_max_position_embeddings;
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > original / config.low_freq_factor) return frequency / config.factor;
  if (wavelength < original / config.high_freq_factor) return frequency;
  const double smooth =
      (original / wavelength - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  return (1 - smooth) * frequency / config.factor + smooth * frequency;
}

// YaRN: dimensions that turn often in the original context are kept, those that hardly turn are slowed down,
// with a ramp between them.
void yarn_frequencies(const RopeConfig& config, std::uint32_t dim, double original,
                      std::vector<double>& frequencies) {
  const auto dimension_of = [&](double turns) {
    return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.theta));
  };
  double low = dimension_of(config.beta_fast);
  double high = dimension_of(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double slow = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / config.factor * slow + frequencies[i] * (1 - slow);
  }
}

// Which of three positions each pair turns by.
std::vector<std::uint8_t> mrope_axes(const RopeConfig& config, std::uint32_t pairs) {
  std::vector<std::uint8_t> axes(pairs, 0);
  const auto& [time, rows, columns] = config.mrope_section;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    if (config.mrope_interleaved) {
      const std::uint32_t turn = i % 3;
      if (turn > 0 && i < 3 * config.mrope_section[turn]) axes[i] = static_cast<std::uint8_t>(turn);
    } else {
      axes[i] = i < time ? 0 : i < time + rows ? 1 : 2;
    }
  }
  return axes;
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(const RopeConfig& config, std::uint32_t dim, std::uint32_t context_length)
    : config_(config), dim_(dim), context_length_(context_length), inverse_frequencies_(dim / 2) {
  for (std::size_t i = 0; i < inverse_frequencies_.size(); ++i)
    inverse_frequencies_[i] = std::pow(config.theta, -2.0 * static_cast<double>(i) / dim);
  if (config.has_mrope()) axes_ = mrope_axes(config, dim / 2);
  switch (config.type) {
    case RopeType::kDefault:
    case RopeType::kDynamic:
      break;
    case RopeType::kLongRope:
      attention_factor_ = static_cast<float>(config.attention_factor);
      break;
    case RopeType::kProportional: {
      const auto turning = static_cast<std::size_t>(config.partial_rotary_factor * dim / 2);
      for (std::size_t i = 0; i < inverse_frequencies_.size(); ++i)
        inverse_frequencies_[i] = i < turning ? inverse_frequencies_[i] / config.factor : 0;
      break;
    }
    case RopeType::kLinear:
      for (double& frequency : inverse_frequencies_) frequency /= config.factor;
      break;
    case RopeType::kLlama3:
      for (double& frequency : inverse_frequencies_) frequency = llama3_frequency(config, frequency);
      break;
    case RopeType::kYarn: {
      const double original = config.original_max_position_embeddings > 0
                                  ? config.original_max_position_embeddings
                                  : context_length;
      yarn_frequencies(config, dim, original, inverse_frequencies_);
      attention_factor_ = static_cast<float>(yarn_attention_factor(config));
      break;
    }
  }
}

void RotaryEmbedding::angles(const std::array<std::uint32_t, 3>& position, std::uint32_t seq_len, float* cos,
                             float* sin) const {
  angles(position[0], seq_len, cos, sin);
  std::vector<float> other_cos(axes_.size()), other_sin(axes_.size());
  for (const std::uint8_t axis : {1, 2}) {
    if (position[axis] == position[0]) continue;
    angles(position[axis], seq_len, other_cos.data(), other_sin.data());
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i] != axis) continue;
      cos[i] = other_cos[i];
      sin[i] = other_sin[i];
    }
  }
}

void RotaryEmbedding::angles(std::uint32_t position, std::uint32_t seq_len, float* cos, float* sin) const {
  // Dynamic NTK: beyond the trained length the base grows with the sequence.
  double stretch = 1;
  if (config_.type == RopeType::kDynamic && seq_len > context_length_ && dim_ > 2) {
    const double grown = config_.factor * seq_len / context_length_ - (config_.factor - 1);
    stretch = std::pow(grown, static_cast<double>(dim_) / (dim_ - 2.0));
  }
  for (std::size_t i = 0; i < inverse_frequencies_.size(); ++i) {
    double frequency = inverse_frequencies_[i];
    if (config_.type == RopeType::kLongRope)
      frequency /= (seq_len > config_.original_max_position_embeddings ? config_.long_factor
                                                                       : config_.short_factor)[i];
    if (stretch != 1) frequency *= std::pow(stretch, -2.0 * static_cast<double>(i) / dim_);
    const double angle = position * frequency;
    cos[i] = static_cast<float>(std::cos(angle)) * attention_factor_;
    sin[i] = static_cast<float>(std::sin(angle)) * attention_factor_;
  }
}

void RotaryEmbedding::rotate(const float* cos, const float* sin, float* x) const {
  const std::uint32_t half = dim_ / 2;
  for (std::uint32_t i = 0; i < half; ++i) {
    float& a = config_.interleaved ? x[2 * i] : x[i];
    float& b = config_.interleaved ? x[2 * i + 1] : x[i + half];
    const float turned = a * cos[i] - b * sin[i];
    b = b * cos[i] + a * sin[i];
    a = turned;
  }
}

}  // namespace tpsim::rank
