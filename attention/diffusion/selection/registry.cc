#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

constexpr std::string_view kUnsimulated[] = {"fa2",
                                             "sparge_attn",
                                             "video_sparse_attn_h3",
                                             "hybrid_window_attn_h3",
                                             "laser_attn",
                                             "block_sparse_attn",
                                             "rain_fusion_attn",
                                             "sol_attn",
                                             "subblock_sparse_attn",
                                             "cube_sparse_attn",
                                             "fp8_fa_sm120",
                                             "no_attention"};

}  // namespace

std::span<const std::string_view> unsimulated_diffusion_backends() { return kUnsimulated; }

const DiffusionBackend& find_diffusion_backend(std::string_view flag, const std::string& name) {
  const std::string lower = to_lower(name);
  std::vector<std::string_view> names;
  for (const DiffusionBackend* const backend : diffusion_backends()) {
    names.push_back(backend->name);
    if (backend->name == lower ||
        std::find(backend->aliases.begin(), backend->aliases.end(), lower) != backend->aliases.end())
      return *backend;
  }
  if (std::find(std::begin(kUnsimulated), std::end(kUnsimulated), lower) != std::end(kUnsimulated))
    throw_user_error("{} {}: SGLang has this attention backend, and it is not simulated; use one of {}", flag,
                     lower, fmt::join(names, ", "));
  throw_user_error("{}: no diffusion attention backend {}{}; use one of {}", flag, in_quotes(name),
                   did_you_mean(lower, names), fmt::join(names, ", "));
}

std::set<std::string, std::less<>> diffusion_packages() {
  std::set<std::string, std::less<>> packages;
  for (const DiffusionBackend* const backend : diffusion_backends()) {
    if (!backend->package.empty()) packages.emplace(backend->package);
  }
  return packages;
}

std::optional<DiffusionPlatform> diffusion_platform(GpuGeneration generation) {
  if (kCudaGenerations.contains(generation)) return DiffusionPlatform::kCuda;
  if (generation == GpuGeneration::kRocm) return DiffusionPlatform::kRocm;
  if (generation == GpuGeneration::kXpu) return DiffusionPlatform::kXpu;
  if (generation == GpuGeneration::kNpu) return DiffusionPlatform::kNpu;
  return std::nullopt;
}

DiffusionAttention::DiffusionAttention(const proto::HardwareProfile& profile, const DiffusionBackend& backend,
                                       const DiffusionParameters& parameters)
    : backend_(&backend), price_(backend.create(profile, parameters)) {}

KernelCost DiffusionAttention::layer(const DiffusionCall& call) const {
  if (call.queries <= 0 || call.keys <= 0 || call.heads == 0 || call.batch <= 0) return {};
  return price_->layer(call);
}

}  // namespace tpsim::attention
