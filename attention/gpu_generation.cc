#include "attention/gpu_generation.h"

#include <array>
#include <utility>

namespace tpsim::attention {
namespace {

constexpr std::array<std::pair<GpuGeneration, std::string_view>, 10> kNames = {
    {{GpuGeneration::kTuring, "turing"},
     {GpuGeneration::kAmpere, "ampere"},
     {GpuGeneration::kAda, "ada"},
     {GpuGeneration::kHopper, "hopper"},
     {GpuGeneration::kBlackwell, "blackwell"},
     {GpuGeneration::kBlackwellSm120, "blackwell_sm120"},
     {GpuGeneration::kRocm, "rocm"},
     {GpuGeneration::kNpu, "npu"},
     {GpuGeneration::kXpu, "xpu"},
     {GpuGeneration::kCpu, "cpu"}}};

}  // namespace

std::string_view to_string(GpuGeneration generation) {
  for (const auto& [known, name] : kNames) {
    if (known == generation) return name;
  }
  return "";
}

std::optional<GpuGeneration> parse_gpu_generation(std::string_view name) {
  for (const auto& [generation, known] : kNames) {
    if (known == name) return generation;
  }
  return std::nullopt;
}

std::string GpuGenerations::names() const {
  std::string text;
  for (const auto& [generation, name] : kNames) {
    if (!contains(generation)) continue;
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

}  // namespace tpsim::attention
