#include "rank/llm/weight_spec.h"

#include <cstddef>
#include <string>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

// The layers that may have this weight: with experts, without, or all.
bool may_have(const WeightSpec& weight, const LayerConfig& layer) {
  const std::string& tensor = weight.slices.front().tensor;
  if (weight.role == WeightRole::kExperts || tensor.starts_with("mlp.shared_expert")) return layer.moe;
  return !tensor.starts_with("mlp.") || !layer.moe;
}

// Blocks of scales are not cut (Fp8LinearMethod::validate_block_quant_shapes): the part of the weight that a
// rank has must be whole blocks.
void check_block(const WeightSpec& weight, const std::string& model) {
  const WeightFormat& format = weight.format;
  if (format.block_n <= 1 || weight.sharding == Sharding::kReplicated) return;
  const bool cut = weight.sharding == Sharding::kRow
                       ? weight.slices.front().width < weight.slices.front().columns
                       : weight.slices.front().count < weight.slices.front().rows;
  if (!cut) return;
  const std::uint64_t size = weight.sharding == Sharding::kRow ? weight.k : weight.slices.front().count;
  const std::uint32_t block = weight.sharding == Sharding::kRow ? format.block_k : format.block_n;
  if (size % block == 0) return;
  throw_user_error(
      "--tp: {} of {} is quantised in blocks of {}, and a rank's part of {} is not a multiple of it; use a "
      "smaller --tp, or --ep-size for experts",
      weight.name, model, block, size);
}

}  // namespace

std::vector<WeightSpec> with_formats(const ModelConfig& model, std::vector<WeightSpec> weights) {
  const QuantizationConfig& quantization = model.quantization;
  if (!quantization.quantized()) return weights;
  std::vector<WeightSpec> out;
  for (WeightSpec& weight : weights) {
    if (weight.name == "lm_head") weight.format = quantization.of("lm_head");
    if (!weight.quantised || weight.slices.empty()) {
      out.push_back(std::move(weight));
      continue;
    }
    const std::string module =
        weight.role == WeightRole::kExperts ? "mlp.experts" : weight.slices.front().tensor;
    std::uint32_t quantised = 0;
    std::uint32_t seen = 0;
    WeightFormat format;
    for (std::size_t i = 0; i < model.layers.size() && seen < weight.layers; ++i) {
      if (!may_have(weight, model.layers[i])) continue;
      ++seen;
      const WeightFormat found =
          quantization.of("model.layers." + std::to_string(model.first_layer + i) + "." + module);
      if (!found.quantized()) continue;
      format = found;
      ++quantised;
    }
    const std::uint32_t plain = weight.layers - quantised;
    if (quantised > 0) {
      WeightSpec& part = out.emplace_back(weight);
      part.format = format;
      part.layers = quantised;
    }
    if (plain > 0) {
      weight.layers = plain;
      out.push_back(std::move(weight));
    }
  }
  return out;
}

void check_blocks(const std::vector<WeightSpec>& weights, const std::string& model) {
  for (const WeightSpec& weight : weights) check_block(weight, model);
}

}  // namespace tpsim::rank
