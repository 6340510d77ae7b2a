#include "rank/numeric/dense_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace tpsim::rank::dense {

Row rms_norm(const Row& x, const std::vector<float>& weight, double eps, double offset) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double factor = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  Row out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * factor * (weight[i] + offset);
  return out;
}

Row layer_norm(Row x, const std::vector<float>& weight, double eps) {
  double mean = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (double& v : x) v -= mean;
  const std::vector<float> ones(x.size(), 1.0F);
  Row out = rms_norm(x, ones, eps, 0);
  for (std::size_t i = 0; i < x.size(); ++i)
    out[i] = out[i] * weight[i] + (weight.size() > x.size() ? weight[x.size() + i] : 0);
  return out;
}

void add(Row& x, const Row& y, double times) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += times * y[i];
}

Row stored(NumberFormat format, const Row& row) {
  std::vector<float> values(row.begin(), row.end());
  const auto count = static_cast<std::uint32_t>(values.size());
  std::vector<std::uint8_t> bytes(stored_bytes(format, count));
  encode(format, values.data(), count, bytes.data());
  decode(format, bytes.data(), count, values.data());
  return {values.begin(), values.end()};
}

Row scaled(const Row& row, double (*scale_of)(double largest)) {
  constexpr std::size_t kTile = 128;
  Row out;
  for (std::size_t first = 0; first < row.size(); first += kTile) {
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
    Row tile(begin, begin + static_cast<std::ptrdiff_t>(std::min(kTile, row.size() - first)));
    double largest = 0;
    for (const double value : tile) largest = std::max(largest, std::abs(value));
    const double scale = largest == 0 ? 1 : scale_of(largest);
    for (double& value : tile) value /= scale;
    for (const double value : stored(NumberFormat::kFp8E4M3, tile)) out.push_back(value * scale);
  }
  return out;
}

Row mixed(const Row& scores, const Rows& v, std::size_t first, const float* sink) {
  double largest = *std::max_element(scores.begin(), scores.end());
  if (sink != nullptr) largest = std::max<double>(largest, *sink);
  double sum = sink != nullptr ? std::exp(*sink - largest) : 0;
  for (const double score : scores) sum += std::exp(score - largest);
  Row row(v[0].size(), 0.0);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - largest) / sum;
    for (std::size_t c = 0; c < row.size(); ++c) row[c] += weight * v[first + j][c];
  }
  return row;
}

PlainRope::PlainRope(const RopeConfig& config, std::size_t dim, double context, double length)
    : config_(config), dim_(dim) {
  double base = config.theta;
  if (config.type == RopeType::kDynamic && length > context)
    base *= std::pow(config.factor * length / context - (config.factor - 1), dim / (dim - 2.0));
  for (std::size_t i = 0; i < dim / 2; ++i)
    frequencies_.push_back(frequency(std::pow(base, -2.0 * i / dim), i, context));
  if (config.type == RopeType::kLongRope) {
    const bool beyond = length > config.original_max_position_embeddings;
    for (std::size_t i = 0; i < dim / 2; ++i)
      frequencies_[i] /= beyond ? config.long_factor[i] : config.short_factor[i];
    gain_ = config.attention_factor;
  }
  if (config.type != RopeType::kYarn) return;
  const auto mscale = [&](double m) {
    return config.factor <= 1 ? 1.0 : 0.1 * m * std::log(config.factor) + 1;
  };
  if (config.attention_factor > 0) {
    gain_ = config.attention_factor;
  } else if (config.mscale > 0 && config.mscale_all_dim > 0) {
    gain_ = mscale(config.mscale) / mscale(config.mscale_all_dim);
  } else {
    gain_ = mscale(1);
  }
}

void PlainRope::rotate(double* x, const std::array<std::size_t, 3>& positions) const {
  rotate(x, positions, 1);
}

void PlainRope::rotate(double* x, const std::array<std::size_t, 3>& positions, double direction) const {
  for (std::size_t i = 0; i < dim_ / 2; ++i) {
    const std::size_t position = positions[axis(i)];
    const std::size_t a = config_.interleaved ? 2 * i : i;
    const std::size_t b = config_.interleaved ? 2 * i + 1 : i + dim_ / 2;
    const double angle = direction * static_cast<double>(position) * frequencies_[i];
    const double c = std::cos(angle) * gain_;
    const double s = std::sin(angle) * gain_;
    const double turned = x[a] * c - x[b] * s;
    x[b] = x[b] * c + x[a] * s;
    x[a] = turned;
  }
}

std::size_t PlainRope::axis(std::size_t i) const {
  const auto& section = config_.mrope_section;
  if (!config_.has_mrope()) return 0;
  if (config_.mrope_interleaved) return i / 3 < section[i % 3] ? i % 3 : 0;
  return i < section[0] ? 0 : i < std::size_t{section[0]} + section[1] ? 1 : 2;
}

double PlainRope::frequency(double f, std::size_t i, double context) const {
  const double original =
      config_.original_max_position_embeddings > 0 ? config_.original_max_position_embeddings : context;
  if (config_.type == RopeType::kLinear) return f / config_.factor;
  if (config_.type == RopeType::kProportional)
    return 2 * i < config_.partial_rotary_factor * static_cast<double>(dim_) ? f / config_.factor : 0;
  if (config_.type == RopeType::kLlama3) {
    const double turns = original * f / (2 * std::numbers::pi);  // in the original context
    const double blend = std::clamp(
        (turns - config_.low_freq_factor) / (config_.high_freq_factor - config_.low_freq_factor), 0.0, 1.0);
    return blend * f + (1 - blend) * f / config_.factor;
  }
  if (config_.type == RopeType::kYarn) {
    const auto bound = [&](double turns) {
      return dim_ * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(config_.theta));
    };
    double low = bound(config_.beta_fast);
    double high = bound(config_.beta_slow);
    if (config_.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim_ - 1.0);
    if (high == low) high += 0.001;
    const double slow = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    return f * (1 - slow) + f / config_.factor * slow;
  }
  return f;
}

}  // namespace tpsim::rank::dense
