#include "rank/numeric/weight_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::rank {
namespace {

// Which part of every expert's width a rank has.
struct Part {
  std::uint64_t first = 0, count = 0;
};

// One expert under names of its own: those of gate, up and down.
MlpWeights load_expert(const WeightReader& reader, const std::string& at,
                       const std::array<const char*, 3>& names, const WeightSpec& gate_up,
                       const WeightSpec& down) {
  WeightSpec in = gate_up;
  WeightSpec out = down;
  // Gate and up, or up alone.
  for (std::size_t i = 0; i < in.slices.size(); ++i)
    in.slices[i].tensor = names[i + names.size() - 1 - in.slices.size()];
  out.slices[0].tensor = names[2];
  MlpWeights mlp;
  mlp.width = static_cast<std::uint32_t>(down.k);
  mlp.gate_up = reader.matrix(at, in);
  mlp.down = reader.matrix(at, out);
  return mlp;
}

// Transformers 5: gate_up_proj [experts, 2 x width, hidden], gate first; down_proj [experts, hidden, width].
// Step 3.5: gate_proj and up_proj apart.
MlpWeights load_fused(const WeightReader& reader, const std::string& at, std::uint64_t experts,
                      std::uint64_t expert, std::uint64_t hidden, std::uint64_t width, Part part,
                      bool apart) {
  const std::string gate = at + (apart ? "gate_proj.weight" : "gate_up_proj");
  const std::string up = apart ? at + "up_proj.weight" : gate;
  const std::string down = at + (apart ? "down_proj.weight" : "down_proj");
  const std::uint64_t rows = apart ? width : 2 * width;
  for (const std::string& name : {gate, up}) reader.source().require(name, {experts, rows, hidden});
  reader.source().require(down, {experts, hidden, width});
  MlpWeights mlp;
  mlp.width = static_cast<std::uint32_t>(part.count);
  mlp.gate_up = PackedMatrix(
      reader.type(), 2 * mlp.width, static_cast<std::uint32_t>(hidden), [&](std::uint32_t i, float* out) {
        const bool second = i >= part.count;
        const std::uint64_t row = part.first + i % part.count + (second && !apart ? width : 0);
        reader.source().read(second ? up : gate, (expert * rows + row) * hidden, hidden, out);
      });
  mlp.down = PackedMatrix(
      reader.type(), static_cast<std::uint32_t>(hidden), mlp.width, [&](std::uint32_t i, float* out) {
        reader.source().read(down, (expert * hidden + i) * width + part.first, part.count, out);
      });
  return mlp;
}

// gate_up_proj [experts, hidden, 2 x width], gate first (Llama 4), or gate and up in turns (gpt-oss);
// down_proj [experts, width, hidden]. Of their biases, where there are any, one
// rank adds that of the output.
MlpWeights load_columns(const WeightReader& reader, const std::string& at, const ModelConfig& model,
                        std::uint64_t expert, Part part, bool adds_down_bias) {
  const std::uint64_t experts = model.moe.num_experts;
  const std::uint64_t hidden = model.hidden_size;
  const std::uint64_t width = model.moe.intermediate_size;
  const std::vector<float> gate_up = reader.range(at + "gate_up_proj", {experts, hidden, 2 * width},
                                                  expert * hidden * 2 * width, hidden * 2 * width);
  const std::vector<float> down = reader.range(at + "down_proj", {experts, width, hidden},
                                               (expert * width + part.first) * hidden, part.count * hidden);
  // Output i of this rank: its gates, then its ups.
  const bool turns = model.names.experts == ExpertLayout::kColumnsInTurns;
  const auto column = [&](std::uint64_t i) {
    const bool up = i >= part.count;
    const std::uint64_t of = part.first + (up ? i - part.count : i);
    return turns ? 2 * of + (up ? 1 : 0) : of + (up ? width : 0);
  };
  MlpWeights mlp;
  mlp.width = static_cast<std::uint32_t>(part.count);
  mlp.gate_up = PackedMatrix(reader.type(), 2 * mlp.width, static_cast<std::uint32_t>(hidden),
                             [&](std::uint32_t i, float* out) {
                               for (std::uint64_t k = 0; k < hidden; ++k)
                                 out[k] = gate_up[k * 2 * width + column(i)];
                             });
  mlp.down = PackedMatrix(reader.type(), static_cast<std::uint32_t>(hidden), mlp.width,
                          [&](std::uint32_t i, float* out) {
                            for (std::uint64_t k = 0; k < part.count; ++k) out[k] = down[k * hidden + i];
                          });
  if (!model.moe.expert_bias) return mlp;
  const std::vector<float> bias =
      reader.range(at + "gate_up_proj_bias", {experts, 2 * width}, expert * 2 * width, 2 * width);
  for (std::uint64_t i = 0; i < 2 * part.count; ++i) mlp.gate_up_bias.push_back(bias[column(i)]);
  reader.source().require(at + "down_proj_bias", {experts, hidden});
  if (adds_down_bias)
    mlp.down_bias = reader.range(at + "down_proj_bias", {experts, hidden}, expert * hidden, hidden);
  return mlp;
}

}  // namespace

PackedMatrix WeightReader::matrix(const std::string& at, const std::vector<TensorSlice>& slices,
                                  WeightType type) const {
  std::uint64_t outputs = 0;
  std::vector<std::string> names;
  for (const TensorSlice& slice : slices) {
    source_.require(names.emplace_back(at + slice.tensor + ".weight"), {slice.rows, slice.columns});
    outputs += slice.count;
  }
  std::size_t current = 0;  // outputs come in order
  std::uint64_t begin = 0;
  const auto width = static_cast<std::uint32_t>(slices.front().width);
  return PackedMatrix(type, static_cast<std::uint32_t>(outputs), width,
                      [&](std::uint32_t output, float* out) {
                        while (output >= begin + slices[current].count) begin += slices[current++].count;
                        const TensorSlice& slice = slices[current];
                        const std::uint64_t row = slice.first + (output - begin);
                        if (row >= slice.rows) {
                          std::fill(out, out + width, 0.0F);
                        } else {
                          source_.read(names[current], row * slice.columns + slice.column, width, out);
                        }
                      });
}

std::vector<float> WeightReader::bias(const std::string& at, const WeightSpec& weight) const {
  std::vector<float> out;
  if (weight.bias == 0) return out;
  for (const TensorSlice& slice : weight.slices) {
    const std::vector<float> part =
        range(at + slice.tensor + ".bias", {slice.rows}, slice.first, slice.count);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::vector<float> WeightReader::vector(const std::string& name, std::uint64_t size) const {
  return range(name, {size}, 0, size);
}

std::vector<float> WeightReader::range(const std::string& name, const std::vector<std::uint64_t>& shape,
                                       std::uint64_t first, std::uint64_t count) const {
  source_.require(name, shape);
  std::vector<float> out(count);
  source_.read(name, first, count, out.data());
  return out;
}

MlpWeights load_mlp(const WeightReader& reader, const std::string& at, const WeightSpec& gate_up,
                    const WeightSpec& down, bool adds_down_bias) {
  MlpWeights mlp;
  mlp.width = static_cast<std::uint32_t>(down.k);
  mlp.gate_up = reader.matrix(at, gate_up);
  mlp.down = reader.matrix(at, down);
  mlp.gate_up_bias = reader.bias(at, gate_up);
  if (adds_down_bias) mlp.down_bias = reader.bias(at, down);
  return mlp;
}

MoeWeights load_moe(const ModelConfig& model, const Shard& shard, const std::vector<WeightSpec>& weights,
                    const WeightReader& reader, const std::string& at, const LayerConfig& layer) {
  const MoeConfig& config = model.moe;
  const std::uint64_t hidden = model.hidden_size;
  const std::uint64_t width = config.intermediate_size;
  const TensorSource& source = reader.source();
  // Mixtral's block is called so by Transformers 4, "mlp" by 5.
  const bool mixtral = source.has(at + "block_sparse_moe.gate.weight");
  const std::string block = at + (mixtral ? "block_sparse_moe." : model.names.mlp);
  const std::string& router = model.names.router;

  MoeWeights moe;
  TensorSlice gate = weight_named(weights, "gate").slices.front();
  gate.tensor = router;
  moe.router = reader.matrix(block, {gate}, WeightType::kFp32);
  if (config.router_bias) moe.router_bias = reader.vector(block + router + ".bias", config.num_experts);
  if (layer.hashed) {
    for (const std::int64_t expert :
         source.integers(block + router + ".tid2eid", std::uint64_t{model.vocab_size} * config.top_k)) {
      if (expert < 0 || expert >= config.num_experts)
        throw_user_error("{}{}.tid2eid: names expert {} of {}", block, router, expert, config.num_experts);
      moe.experts_of_token.push_back(static_cast<std::uint32_t>(expert));
    }
  } else if (config.scoring >= ExpertScoring::kSigmoid) {
    moe.correction_bias = reader.vector(block + router + ".e_score_correction_bias", config.num_experts);
  }
  if (config.softmax_bias)
    moe.correction_bias = reader.range(block + router + ".e_score_correction_bias", {1, config.num_experts},
                                       0, config.num_experts);

  if (config.gemma_router) {
    moe.router_norm = reader.vector(at + "router.scale", hidden);
    for (float& scale : moe.router_norm) scale /= std::sqrt(static_cast<float>(hidden));
    moe.expert_scales = reader.vector(at + "router.per_expert_scale", config.num_experts);
    moe.dense_post_norm = reader.vector(at + "post_feedforward_layernorm_1.weight", hidden);
    moe.pre_norm = reader.vector(at + "pre_feedforward_layernorm_2.weight", hidden);
    moe.post_norm = reader.vector(at + "post_feedforward_layernorm_2.weight", hidden);
  }

  const WeightSpec& gate_up = weight_named(weights, "experts.gate_up_proj");
  const WeightSpec& down = weight_named(weights, "experts.down_proj");
  const Part part{down.slices.front().column, down.k};
  const std::uint32_t count = gate_up.experts;
  moe.first_expert = count * shard.experts.rank;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t expert = moe.first_expert + i;
    const std::string one = fmt::format("{}experts.{}.", block, expert);
    const bool stacked = model.names.experts == ExpertLayout::kStacked;
    if (!stacked && model.names.experts != ExpertLayout::kRows) {
      moe.experts.push_back(
          load_columns(reader, block + "experts.", model, expert, part, shard.expert_width.rank == 0));
    } else if (mixtral && source.has(one + "w1.weight")) {
      moe.experts.push_back(load_expert(reader, one, {"w1", "w3", "w2"}, gate_up, down));
    } else if (!stacked &&
               (source.has(one + "gate_proj.weight") || !source.has(block + "experts.gate_up_proj"))) {
      moe.experts.push_back(load_expert(reader, one, {"gate_proj", "up_proj", "down_proj"}, gate_up, down));
    } else {
      moe.experts.push_back(
          load_fused(reader, block + "experts.", config.num_experts, expert, hidden, width, part, stacked));
    }
    moe.experts.back().limit = layer.expert_limit;
  }
  if (config.latent_size > 0) {
    moe.to_latent = reader.matrix(at, weight_named(weights, "fc1_latent_proj"));
    moe.from_latent = reader.matrix(at, weight_named(weights, "fc2_latent_proj"));
  }
  if (config.num_shared_experts > 0) {
    moe.shared = load_mlp(reader, at, weight_named(weights, "shared_experts.gate_up_proj"),
                          weight_named(weights, "shared_experts.down_proj"), shard.shared_experts.rank == 0);
    moe.shared.limit = layer.mlp_limit;
  }
  if (config.shared_gate)
    moe.shared_gate = reader.range(at + "mlp.shared_expert_gate.weight", {1, hidden}, 0, hidden);
  return moe;
}

}  // namespace tpsim::rank
