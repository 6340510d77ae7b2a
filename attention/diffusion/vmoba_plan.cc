#include "attention/diffusion/vmoba_plan.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "attention/diffusion/parameters.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

GridSize sizes(const DiffusionParameters& parameters, std::string_view name) {
  GridSize read{};
  std::size_t at = 0;
  for (const std::string& part : split_list(text_parameter(parameters, name)))
    read[at++] = static_cast<std::uint32_t>(std::stoul(part));
  return read;
}

}  // namespace

VmobaPlan::VmobaPlan(const DiffusionParameters& parameters)
    : full_steps_(count_parameter(parameters, "first_full_step")),
      full_layers_(count_parameter(parameters, "first_full_layer")) {
  const auto count = [&](std::string_view name) { return count_parameter(parameters, name); };
  const GridSize plane = sizes(parameters, "spatial_chunk_size");
  kinds_ = {Kind{{count("temporal_chunk_size"), 0, 0}, count("temporal_topk"), count("temporal_layer")},
            Kind{{0, plane[0], plane[1]}, count("spatial_topk"), count("spatial_layer")},
            Kind{sizes(parameters, "st_chunk_size"), count("st_topk"), count("st_layer")}};
}

VmobaLayer VmobaPlan::layer(std::uint32_t layer, const GridSize& grid) const {
  const std::uint32_t round = kinds_[0].layers + kinds_[1].layers + kinds_[2].layers;
  std::uint32_t at = (layer - full_layers_) % round;
  const Kind* kind = kinds_.data();
  while (at >= kind->layers) at -= (kind++)->layers;
  VmobaLayer out{.chunk = kind->chunk, .topk = kind->topk};
  const bool temporal = kind == kinds_.data();
  for (std::size_t side = 0; side < 3; ++side) {
    if (out.chunk[side] == 0) out.chunk[side] = grid[side];
    if (!temporal && grid[side] % out.chunk[side] != 0)
      throw_user_error(
          "{}: {}_chunk_size has {} {}, which do not divide the transformer's {} (SGLang's layers stop "
          "there)",
          kDiffusionConfigFlag, kind == &kinds_[1] ? "spatial" : "st", out.chunk[side],
          std::array{"frames", "rows", "columns"}[side], grid[side]);
    out.chunk[side] = std::min(out.chunk[side], grid[side]);
  }
  return out;
}

}  // namespace tpsim::attention
