#include "rank/numeric/expert_weights.h"

#include <fmt/format.h>

#include <vector>

namespace tpsim::rank {
namespace {

// Which part of every expert's width a rank has.
struct Part {
  std::uint64_t first = 0, count = 0;
};

MlpWeights load_gated(const WeightReader& reader, const std::string& gate, const std::string& up,
                      const std::string& down, std::uint64_t hidden, std::uint64_t width, Part part) {
  MlpWeights mlp;
  mlp.width = static_cast<std::uint32_t>(part.count);
  mlp.gate_up = reader.matrix({{gate + ".weight", width, hidden, part.first, part.count, 0, hidden},
                               {up + ".weight", width, hidden, part.first, part.count, 0, hidden}});
  mlp.down = reader.matrix({{down + ".weight", hidden, width, 0, hidden, part.first, part.count}});
  return mlp;
}

// Transformers 5: gate_up_proj [experts, 2 x width, hidden], gate first; down_proj [experts, hidden, width].
MlpWeights load_fused(const WeightReader& reader, const std::string& at, std::uint64_t experts,
                      std::uint64_t expert, std::uint64_t hidden, std::uint64_t width, Part part) {
  const std::vector<std::uint64_t> gate_up_shape = {experts, 2 * width, hidden};
  const std::vector<std::uint64_t> down_shape = {experts, hidden, width};
  reader.source().require(at + "gate_up_proj", gate_up_shape);
  reader.source().require(at + "down_proj", down_shape);
  MlpWeights mlp;
  mlp.width = static_cast<std::uint32_t>(part.count);
  mlp.gate_up = PackedMatrix(
      reader.type(), 2 * mlp.width, static_cast<std::uint32_t>(hidden), [&](std::uint32_t i, float* out) {
        const std::uint64_t row = i < part.count ? part.first + i : width + part.first + i - part.count;
        reader.source().read(at + "gate_up_proj", (expert * 2 * width + row) * hidden, hidden, out);
      });
  mlp.down = PackedMatrix(
      reader.type(), static_cast<std::uint32_t>(hidden), mlp.width, [&](std::uint32_t i, float* out) {
        reader.source().read(at + "down_proj", (expert * hidden + i) * width + part.first, part.count, out);
      });
  return mlp;
}

// gpt-oss: gate_up_proj [experts, hidden, 2 x width] with gate and up in turns, down_proj [experts, width,
// hidden], both with biases.
MlpWeights load_gpt_oss(const WeightReader& reader, const std::string& at, std::uint64_t experts,
                        std::uint64_t expert, std::uint64_t hidden, std::uint64_t width, Part part,
                        bool has_down_bias) {
  const std::vector<float> gate_up = reader.range(at + "gate_up_proj", {experts, hidden, 2 * width},
                                                  expert * hidden * 2 * width, hidden * 2 * width);
  const std::vector<float> down = reader.range(at + "down_proj", {experts, width, hidden},
                                               (expert * width + part.first) * hidden, part.count * hidden);
  const std::vector<float> bias =
      reader.range(at + "gate_up_proj_bias", {experts, 2 * width}, expert * 2 * width, 2 * width);
  // Output i of this rank: its gates, then its ups.
  const auto column = [&](std::uint64_t i) {
    return i < part.count ? 2 * (part.first + i) : 2 * (part.first + i - part.count) + 1;
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
  for (std::uint64_t i = 0; i < 2 * part.count; ++i) mlp.gate_up_bias.push_back(bias[column(i)]);
  reader.source().require(at + "down_proj_bias", {experts, hidden});
  if (has_down_bias)
    mlp.down_bias = reader.range(at + "down_proj_bias", {experts, hidden}, expert * hidden, hidden);
  return mlp;
}

}  // namespace

MlpWeights load_mlp(const WeightReader& reader, const std::string& at, std::uint64_t hidden,
                    std::uint64_t width, std::uint32_t part, std::uint32_t parts, bool bias) {
  const Part mine{width / parts * part, width / parts};
  MlpWeights mlp =
      load_gated(reader, at + "gate_proj", at + "up_proj", at + "down_proj", hidden, width, mine);
  if (!bias) return mlp;
  for (const char* name : {"gate_proj.bias", "up_proj.bias"}) {
    const std::vector<float> values = reader.range(at + name, {width}, mine.first, mine.count);
    mlp.gate_up_bias.insert(mlp.gate_up_bias.end(), values.begin(), values.end());
  }
  // Once, by the first rank: the parts are added up.
  if (part == 0) mlp.down_bias = reader.vector(at + "down_proj.bias", hidden);
  return mlp;
}

MoeWeights load_moe(const ModelConfig& model, const Shard& shard, const WeightReader& reader,
                    const std::string& at) {
  const MoeConfig& config = model.moe;
  const std::uint64_t hidden = model.hidden_size;
  const std::uint64_t width = config.intermediate_size;
  const TensorSource& source = reader.source();
  const bool gpt_oss = model.activation == Activation::kGptOssSwiGlu;
  // Mixtral's block is called so by Transformers 4, "mlp" by 5.
  const bool mixtral =
      model.architecture == "MixtralForCausalLM" && source.has(at + "block_sparse_moe.gate.weight");
  const std::string block = at + (mixtral ? "block_sparse_moe." : "mlp.");
  const std::string router = block + (gpt_oss ? "router" : "gate");

  MoeWeights moe;
  moe.router =
      reader.matrix({{router + ".weight", config.num_experts, hidden, 0, config.num_experts, 0, hidden}},
                    WeightType::kFp32);
  if (config.router_bias) moe.router_bias = reader.vector(router + ".bias", config.num_experts);
  if (config.scoring == ExpertScoring::kSigmoid)
    moe.correction_bias = reader.vector(router + ".e_score_correction_bias", config.num_experts);

  const bool whole = shard.ep_size > 1;
  const std::uint32_t count = whole ? config.num_experts / shard.ep_size : config.num_experts;
  const Part part =
      whole ? Part{0, width} : Part{width / shard.tp_size * shard.tp_rank, width / shard.tp_size};
  moe.first_expert = whole ? count * shard.tp_rank : 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t expert = moe.first_expert + i;
    const std::string one = fmt::format("{}experts.{}.", block, expert);
    if (gpt_oss) {
      moe.experts.push_back(load_gpt_oss(reader, block + "experts.", config.num_experts, expert, hidden,
                                         width, part, whole || shard.tp_rank == 0));
    } else if (mixtral && source.has(one + "w1.weight")) {
      moe.experts.push_back(load_gated(reader, one + "w1", one + "w3", one + "w2", hidden, width, part));
    } else if (source.has(one + "gate_proj.weight") || !source.has(block + "experts.gate_up_proj")) {
      moe.experts.push_back(
          load_gated(reader, one + "gate_proj", one + "up_proj", one + "down_proj", hidden, width, part));
    } else {
      moe.experts.push_back(
          load_fused(reader, block + "experts.", config.num_experts, expert, hidden, width, part));
    }
  }
  if (config.num_shared_experts > 0)
    moe.shared = load_mlp(reader, block + "shared_experts.", hidden, width * config.num_shared_experts,
                          shard.tp_rank, shard.tp_size, /*bias=*/false);
  return moe;
}

}  // namespace tpsim::rank
