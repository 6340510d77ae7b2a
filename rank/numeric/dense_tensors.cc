#include "rank/numeric/dense_tensors.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "proto/base/stop_flag.h"

namespace tpsim::rank {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// Y = X W^T (+ b), W [n, k] flat.
Rows times(const Row& w, const Rows& x, const Row& bias = {}) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  StopFlag::throw_if_requested();
  const auto rows = static_cast<Eigen::Index>(x.size());
  const auto k = static_cast<Eigen::Index>(x[0].size());
  const auto n = static_cast<Eigen::Index>(w.size()) / k;
  Matrix in(rows, k);
  for (Eigen::Index r = 0; r < rows; ++r)
    std::copy(x[static_cast<std::size_t>(r)].begin(), x[static_cast<std::size_t>(r)].end(),
              in.row(r).begin());
  Matrix out = in * Eigen::Map<const Matrix>(w.data(), n, k).transpose();
  if (!bias.empty()) out.rowwise() += Eigen::Map<const Eigen::RowVectorXd>(bias.data(), n);
  Rows result;
  for (Eigen::Index r = 0; r < rows; ++r) result.emplace_back(out.row(r).begin(), out.row(r).end());
  return result;
}

Row softmax(Row x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - largest);
  for (double& v : x) v /= sum;
  return x;
}

std::vector<std::size_t> best(const Row& scores, std::size_t count) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  return order;
}

Row to_row(const std::vector<float>& values) { return {values.begin(), values.end()}; }

Row read_flat(const TensorSource& source, const std::string& name, const std::vector<std::uint64_t>& shape,
              std::uint64_t first, std::uint64_t count) {
  source.require(name, shape);
  std::vector<float> values(count);
  source.read(name, first, count, values.data());
  return to_row(values);
}

}  // namespace

Row DenseLayer::read(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint64_t first,
                     std::uint64_t count) const {
  return read_flat(source_, prefix_ + name, shape, first, count);
}

Row DenseLayer::vector(const std::string& name) const {
  std::uint64_t size = model_.hidden_size;
  if (name.starts_with("self_attn.indexer.k_norm.")) {
    size = model_.indexer.head_dim;
  } else if (name.ends_with("q_a_layernorm.weight")) {
    size = model_.mla.q_lora_rank;
  } else if (name.ends_with("kv_a_layernorm.weight")) {
    size = model_.mla.kv_lora_rank;
  } else if (name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight")) {
    size = model_.head_dim;
  } else if (name.ends_with("sinks")) {
    size = model_.num_attention_heads;
  }
  return read(name, {size}, 0, size);
}

Row DenseLayer::tensor(const std::string& name, const std::vector<std::uint64_t>& shape) const {
  std::uint64_t size = 1;
  for (const std::uint64_t extent : shape) size *= extent;
  return read(name, shape, 0, size);
}

Rows DenseLayer::product(const std::string& name, const Rows& x, std::uint64_t outputs) const {
  return times(tensor(name + ".weight", {outputs, x[0].size()}), x);
}

Rows DenseLayer::linear(const std::string& name, const Rows& x, bool bias) const {
  const std::uint64_t k = x[0].size();
  const MlaConfig& mla = model_.mla;
  const std::uint64_t heads = model_.num_attention_heads;
  std::uint64_t n = model_.hidden_size;  // o_proj
  if (name.ends_with("q_proj") || name.ends_with("q_b_proj"))
    n = heads * model_.head_dim * (model_.attn_output_gate ? 2 : 1);
  if (name.ends_with("k_proj") || name.ends_with("v_proj"))
    n = std::uint64_t{model_.num_key_value_heads} * model_.head_dim;
  if (name.ends_with("q_a_proj")) n = mla.q_lora_rank;
  if (name.ends_with("kv_a_proj_with_mqa")) n = std::uint64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim;
  if (name.ends_with("kv_b_proj")) n = heads * (mla.qk_nope_head_dim + mla.v_head_dim);
  const IndexerConfig& indexer = model_.indexer;
  if (name.ends_with("indexer.wq_b")) n = std::uint64_t{indexer.num_heads} * indexer.head_dim;
  if (name.ends_with("indexer.wk")) n = indexer.head_dim;
  if (name.ends_with("indexer.weights_proj")) n = indexer.num_heads;
  if (model_.names.fused_projections && !name.ends_with("o_proj")) {
    // Queries, keys, values, one above the other.
    const std::uint64_t q = heads * model_.head_dim;
    const std::uint64_t kv = std::uint64_t{model_.num_key_value_heads} * model_.head_dim;
    const std::uint64_t first = name.ends_with("q_proj") ? 0 : name.ends_with("k_proj") ? q : q + kv;
    return times(read("self_attn.qkv_proj.weight", {q + 2 * kv, k}, first * k, n * k), x);
  }
  const Row w = read(name + ".weight", {n, k}, 0, n * k);
  const Row b = bias ? read(name + ".bias", {n}, 0, n) : Row();
  return times(w, x, b);
}

Row DenseLayer::activated(Row gate, const Row& up) const {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    double& g = gate[i];
    switch (model_.activation) {
      case Activation::kSilu:
        g = g / (1 + std::exp(-g)) * up[i];
        break;
      case Activation::kGeluTanh:
        g = 0.5 * g * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) *
            up[i];
        break;
      case Activation::kGptOssSwiGlu: {
        const double clamped = std::min(g, 7.0);
        g = clamped / (1 + std::exp(-1.702 * clamped)) * (std::clamp(up[i], -7.0, 7.0) + 1);
        break;
      }
    }
  }
  return gate;
}

Rows DenseLayer::gated(const Expert& expert, const Rows& x) const {
  Rows gate = times(expert.gate, x, expert.gate_bias);
  const Rows up = times(expert.up, x, expert.up_bias);
  for (std::size_t r = 0; r < gate.size(); ++r) gate[r] = activated(std::move(gate[r]), up[r]);
  return times(expert.down, gate, expert.down_bias);
}

Rows DenseLayer::mlp(const Rows& x) const {
  const std::uint64_t hidden = model_.hidden_size;
  const std::uint64_t width = model_.intermediate_size;
  const std::string& at = model_.names.mlp;
  Expert all;
  if (model_.names.fused_projections) {
    all.gate = read(at + "gate_up_proj.weight", {2 * width, hidden}, 0, width * hidden);
    all.up = read(at + "gate_up_proj.weight", {2 * width, hidden}, width * hidden, width * hidden);
  } else {
    all.gate = read(at + "gate_proj.weight", {width, hidden}, 0, width * hidden);
    all.up = read(at + "up_proj.weight", {width, hidden}, 0, width * hidden);
  }
  all.down = read(at + "down_proj.weight", {hidden, width}, 0, width * hidden);
  if (model_.mlp_bias) {
    all.gate_bias = read(at + "gate_proj.bias", {width}, 0, width);
    all.up_bias = read(at + "up_proj.bias", {width}, 0, width);
    all.down_bias = read(at + "down_proj.bias", {hidden}, 0, hidden);
  }
  return gated(all, x);
}

DenseLayer::Expert DenseLayer::expert(const std::string& block, std::uint64_t index) const {
  const std::uint64_t hidden = model_.hidden_size;
  const std::uint64_t width = model_.moe.intermediate_size;
  const std::uint64_t experts = model_.moe.num_experts;
  Expert out;
  if (model_.names.experts != ExpertLayout::kRows) {
    const bool turns = model_.names.experts == ExpertLayout::kColumnsInTurns;
    const auto gate = [&](std::uint64_t j) { return turns ? 2 * j : j; };
    const auto up = [&](std::uint64_t j) { return turns ? 2 * j + 1 : width + j; };
    const Row both = read(block + "experts.gate_up_proj", {experts, hidden, 2 * width},
                          index * hidden * 2 * width, hidden * 2 * width);
    const Row down =
        read(block + "experts.down_proj", {experts, width, hidden}, index * width * hidden, width * hidden);
    for (std::uint64_t j = 0; j < width; ++j) {
      for (std::uint64_t i = 0; i < hidden; ++i) {
        out.gate.push_back(both[i * 2 * width + gate(j)]);
        out.up.push_back(both[i * 2 * width + up(j)]);
      }
    }
    for (std::uint64_t i = 0; i < hidden; ++i) {
      for (std::uint64_t j = 0; j < width; ++j) out.down.push_back(down[j * hidden + i]);
    }
    if (!model_.moe.expert_bias) return out;
    const Row both_bias =
        read(block + "experts.gate_up_proj_bias", {experts, 2 * width}, index * 2 * width, 2 * width);
    for (std::uint64_t j = 0; j < width; ++j) {
      out.gate_bias.push_back(both_bias[gate(j)]);
      out.up_bias.push_back(both_bias[up(j)]);
    }
    out.down_bias = read(block + "experts.down_proj_bias", {experts, hidden}, index * hidden, hidden);
    return out;
  }
  const std::string one = fmt::format("{}experts.{}.", block, index);
  const bool mixtral = block.starts_with("block_sparse_moe.") && source_.has(prefix_ + one + "w1.weight");
  if (!mixtral && !source_.has(prefix_ + one + "gate_proj.weight") &&
      source_.has(prefix_ + block + "experts.gate_up_proj")) {
    const Row both = read(block + "experts.gate_up_proj", {experts, 2 * width, hidden},
                          index * 2 * width * hidden, 2 * width * hidden);
    const auto half = both.begin() + static_cast<std::ptrdiff_t>(width * hidden);
    out.gate.assign(both.begin(), half);
    out.up.assign(half, both.end());
    out.down =
        read(block + "experts.down_proj", {experts, hidden, width}, index * hidden * width, hidden * width);
    return out;
  }
  const auto part = [&](const char* name, std::uint64_t n, std::uint64_t k) {
    return read(one + name + ".weight", {n, k}, 0, n * k);
  };
  out.gate = part(mixtral ? "w1" : "gate_proj", width, hidden);
  out.up = part(mixtral ? "w3" : "up_proj", width, hidden);
  out.down = part(mixtral ? "w2" : "down_proj", hidden, width);
  return out;
}

std::string DenseLayer::router_of(const std::string& block) const { return block + model_.names.router; }

std::vector<std::pair<std::size_t, double>> DenseLayer::chosen(const std::string& block, Row scores) const {
  const MoeConfig& moe = model_.moe;
  const std::uint64_t experts = moe.num_experts;
  if (moe.scoring == ExpertScoring::kSoftmaxThenTopK) scores = softmax(scores);
  Row choice = scores;
  if (moe.scoring == ExpertScoring::kSigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
    choice = scores;
    const Row correction = read(router_of(block) + ".e_score_correction_bias", {experts}, 0, experts);
    for (std::size_t i = 0; i < experts; ++i) choice[i] += correction[i];
  }
  if (moe.num_groups > 1) {
    const std::size_t size = experts / moe.num_groups;
    Row groups;
    for (std::size_t g = 0; g < moe.num_groups; ++g) {
      Row of(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
             choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::sort(of.rbegin(), of.rend());
      groups.push_back(moe.group_score_top2 ? of[0] + of[1] : of[0]);
    }
    Row limited(choice.size(), -HUGE_VAL);
    for (const std::size_t g : best(groups, moe.topk_groups)) {
      for (std::size_t i = g * size; i < (g + 1) * size; ++i) limited[i] = choice[i];
    }
    choice = limited;
  }
  std::vector<std::pair<std::size_t, double>> out;
  double sum = 0;
  Row top;
  for (const std::size_t expert : best(choice, moe.top_k)) top.push_back(scores[expert]);
  Row weights = moe.scoring == ExpertScoring::kTopKThenSoftmax ? softmax(top) : top;
  if (moe.scoring == ExpertScoring::kTopKThenSigmoid) {
    for (double& weight : weights) weight = 1 / (1 + std::exp(-weight));
  }
  for (const double weight : weights) sum += weight;
  std::size_t i = 0;
  for (const std::size_t expert : best(choice, moe.top_k)) {
    const double weight = moe.normalize_weights ? weights[i] / sum : weights[i];
    out.emplace_back(expert, weight * moe.routed_scaling_factor);
    ++i;
  }
  return out;
}

Rows DenseLayer::experts(const Rows& x) const {
  const MoeConfig& moe = model_.moe;
  const std::uint64_t hidden = model_.hidden_size;
  const bool mixtral = source_.has(prefix_ + "block_sparse_moe.gate.weight");
  const std::string block = mixtral ? "block_sparse_moe." : model_.names.mlp;
  const std::string router = router_of(block);
  const Rows scores =
      times(read(router + ".weight", {moe.num_experts, hidden}, 0, moe.num_experts * hidden), x,
            moe.router_bias ? read(router + ".bias", {moe.num_experts}, 0, moe.num_experts) : Row());
  Rows out(x.size(), Row(hidden, 0.0));
  std::map<std::size_t, std::vector<std::pair<std::size_t, double>>> rows_of;  // per expert: rows, weights
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (const auto& [index, weight] : chosen(block, scores[r])) rows_of[index].emplace_back(r, weight);
  }
  const auto add = [&out](std::size_t r, double weight, const Row& result) {
    for (std::size_t i = 0; i < result.size(); ++i) out[r][i] += weight * result[i];
  };
  for (const auto& [index, rows] : rows_of) {
    Rows in;
    for (const auto& [r, weight] : rows) {
      in.push_back(x[r]);
      if (!moe.weight_on_input) continue;
      for (double& value : in.back()) value *= weight;
    }
    const Rows results = gated(expert(block, index), in);
    for (std::size_t i = 0; i < rows.size(); ++i)
      add(rows[i].first, moe.weight_on_input ? 1 : rows[i].second, results[i]);
  }
  if (moe.num_shared_experts == 0) return out;
  const std::uint64_t width = std::uint64_t{moe.num_shared_experts} * moe.intermediate_size;
  Expert shared;
  const std::string at = model_.names.mlp + model_.names.shared;
  shared.gate = read(at + "gate_proj.weight", {width, hidden}, 0, width * hidden);
  shared.up = read(at + "up_proj.weight", {width, hidden}, 0, width * hidden);
  shared.down = read(at + "down_proj.weight", {hidden, width}, 0, width * hidden);
  Rows results = gated(shared, x);
  if (moe.shared_gate) {
    const Rows gates = product("mlp.shared_expert_gate", x, 1);
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (double& value : results[r]) value /= 1 + std::exp(-gates[r][0]);
    }
  }
  for (std::size_t r = 0; r < x.size(); ++r) add(r, 1, results[r]);
  return out;
}

DenseTensors::DenseTensors(const ModelConfig& model, const TensorSource& source)
    : model_(model), source_(source) {
  prefix_ = "model.";
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model."}) {
    if (!source.has(std::string(prefix) + "embed_tokens.weight")) continue;
    prefix_ = prefix;
    break;
  }
}

Row DenseTensors::embedding(std::uint32_t id) const {
  const std::uint64_t hidden = model_.hidden_size;
  return read_flat(source_, prefix_ + "embed_tokens.weight", {model_.vocab_size, hidden}, id * hidden,
                   hidden);
}

Row DenseTensors::final_norm() const {
  return read_flat(source_, prefix_ + "norm.weight", {model_.hidden_size}, 0, model_.hidden_size);
}

Rows DenseTensors::head(const Rows& x) const {
  const std::uint64_t hidden = model_.hidden_size;
  const std::string untied =
      prefix_.starts_with("language_model.") ? "language_model.lm_head.weight" : "lm_head.weight";
  const std::string name = model_.tie_word_embeddings ? prefix_ + "embed_tokens.weight" : untied;
  return times(read_flat(source_, name, {model_.vocab_size, hidden}, 0, model_.vocab_size * hidden), x);
}

DenseLayer DenseTensors::layer(std::uint32_t index) const {
  return {model_, source_, fmt::format("{}layers.{}.", prefix_, index)};
}

}  // namespace tpsim::rank
