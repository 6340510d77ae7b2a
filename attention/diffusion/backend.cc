#include "attention/diffusion/backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace tpsim::attention {

std::string_view to_string(DiffusionPlatform platform) {
  static constexpr std::string_view kNames[] = {"CUDA", "ROCm", "XPU", "MUSA", "MPS", "NPU"};
  return kNames[static_cast<std::size_t>(platform)];
}

std::string DiffusionPlatforms::names() const {
  std::string names;
  for (const DiffusionPlatform platform : kDiffusionPlatforms) {
    if (contains(platform)) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(platform));
  }
  return names;
}

bool HeadSizes::contains(std::uint32_t head_dim) const {
  if (listed.empty()) return head_dim >= min && head_dim <= max;
  return std::find(listed.begin(), listed.end(), head_dim) != listed.end();
}

std::string HeadSizes::names() const {
  return listed.empty() ? fmt::format("{} to {}", min, max) : fmt::format("{}", fmt::join(listed, ", "));
}

const std::string& text_parameter(const DiffusionParameters& parameters, std::string_view name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) throw std::logic_error("no parameter " + std::string(name));
  return found->second;
}

double real_parameter(const DiffusionParameters& parameters, std::string_view name) {
  return std::strtod(text_parameter(parameters, name).c_str(), nullptr);
}

std::uint32_t count_parameter(const DiffusionParameters& parameters, std::string_view name) {
  return static_cast<std::uint32_t>(std::strtoul(text_parameter(parameters, name).c_str(), nullptr, 10));
}

}  // namespace tpsim::attention
