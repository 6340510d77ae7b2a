#include "rank/numeric/dense_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tpsim::rank {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// y = W x (+ b), W [n, k] flat.
Row times(const Row& w, const Row& x, const Row& bias = {}) {
  Row y(w.size() / x.size(), 0.0);
  for (std::size_t j = 0; j < y.size(); ++j) {
    for (std::size_t i = 0; i < x.size(); ++i) y[j] += w[j * x.size() + i] * x[i];
    if (!bias.empty()) y[j] += bias[j];
  }
  return y;
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

Row DenseLayer::read(const std::string& name, std::vector<std::uint64_t> shape, std::uint64_t first,
                     std::uint64_t count) const {
  return read_flat(source_, prefix_ + name, shape, first, count);
}

Row DenseLayer::vector(const std::string& name) const {
  std::uint64_t size = model_.hidden_size;
  if (name.ends_with("q_a_layernorm.weight")) {
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

Rows DenseLayer::linear(const std::string& name, const Rows& x, bool bias) const {
  const std::uint64_t k = x[0].size();
  const MlaConfig& mla = model_.mla;
  const std::uint64_t heads = model_.num_attention_heads;
  std::uint64_t n = model_.hidden_size;  // o_proj
  if (name.ends_with("q_proj") || name.ends_with("q_b_proj")) n = heads * model_.head_dim;
  if (name.ends_with("k_proj") || name.ends_with("v_proj"))
    n = std::uint64_t{model_.num_key_value_heads} * model_.head_dim;
  if (name.ends_with("q_a_proj")) n = mla.q_lora_rank;
  if (name.ends_with("kv_a_proj_with_mqa")) n = std::uint64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim;
  if (name.ends_with("kv_b_proj")) n = heads * (mla.qk_nope_head_dim + mla.v_head_dim);
  const Row w = read(name + ".weight", {n, k}, 0, n * k);
  const Row b = bias ? read(name + ".bias", {n}, 0, n) : Row();
  Rows out;
  for (const Row& row : x) out.push_back(times(w, row, b));
  return out;
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

Row DenseLayer::gated(const Expert& expert, const Row& x) const {
  return times(expert.down,
               activated(times(expert.gate, x, expert.gate_bias), times(expert.up, x, expert.up_bias)),
               expert.down_bias);
}

Row DenseLayer::mlp(const Row& x) const {
  const std::uint64_t hidden = model_.hidden_size;
  const std::uint64_t width = model_.intermediate_size;
  Expert all;
  all.gate = read("mlp.gate_proj.weight", {width, hidden}, 0, width * hidden);
  all.up = read("mlp.up_proj.weight", {width, hidden}, 0, width * hidden);
  all.down = read("mlp.down_proj.weight", {hidden, width}, 0, width * hidden);
  if (model_.mlp_bias) {
    all.gate_bias = read("mlp.gate_proj.bias", {width}, 0, width);
    all.up_bias = read("mlp.up_proj.bias", {width}, 0, width);
    all.down_bias = read("mlp.down_proj.bias", {hidden}, 0, hidden);
  }
  return gated(all, x);
}

DenseLayer::Expert DenseLayer::expert(const std::string& block, std::uint64_t index) const {
  const std::uint64_t hidden = model_.hidden_size;
  const std::uint64_t width = model_.moe.intermediate_size;
  const std::uint64_t experts = model_.moe.num_experts;
  Expert out;
  if (model_.activation == Activation::kGptOssSwiGlu) {
    const Row both = read(block + "experts.gate_up_proj", {experts, hidden, 2 * width},
                          index * hidden * 2 * width, hidden * 2 * width);
    const Row both_bias =
        read(block + "experts.gate_up_proj_bias", {experts, 2 * width}, index * 2 * width, 2 * width);
    const Row down =
        read(block + "experts.down_proj", {experts, width, hidden}, index * width * hidden, width * hidden);
    for (std::uint64_t j = 0; j < width; ++j) {
      for (std::uint64_t i = 0; i < hidden; ++i) {
        out.gate.push_back(both[i * 2 * width + 2 * j]);
        out.up.push_back(both[i * 2 * width + 2 * j + 1]);
      }
      out.gate_bias.push_back(both_bias[2 * j]);
      out.up_bias.push_back(both_bias[2 * j + 1]);
    }
    for (std::uint64_t i = 0; i < hidden; ++i) {
      for (std::uint64_t j = 0; j < width; ++j) out.down.push_back(down[j * hidden + i]);
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

std::vector<std::pair<std::size_t, double>> DenseLayer::chosen(const std::string& block, const Row& x) const {
  const MoeConfig& moe = model_.moe;
  const std::uint64_t experts = moe.num_experts;
  const std::string name = block + (model_.activation == Activation::kGptOssSwiGlu ? "router" : "gate");
  Row scores = times(read(name + ".weight", {experts, x.size()}, 0, experts * x.size()), x,
                     moe.router_bias ? read(name + ".bias", {experts}, 0, experts) : Row());
  if (moe.scoring == ExpertScoring::kSoftmaxThenTopK) scores = softmax(scores);
  Row choice = scores;
  if (moe.scoring == ExpertScoring::kSigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
    choice = scores;
    const Row correction = read(name + ".e_score_correction_bias", {experts}, 0, experts);
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
    Row limited(choice.size(), 0.0);
    for (const std::size_t g : best(groups, moe.topk_groups)) {
      for (std::size_t i = g * size; i < (g + 1) * size; ++i) limited[i] = choice[i];
    }
    choice = limited;
  }
  std::vector<std::pair<std::size_t, double>> out;
  double sum = 0;
  Row top;
  for (const std::size_t expert : best(choice, moe.top_k)) top.push_back(scores[expert]);
  const Row weights = moe.scoring == ExpertScoring::kTopKThenSoftmax ? softmax(top) : top;
  for (const double weight : weights) sum += weight;
  std::size_t i = 0;
  for (const std::size_t expert : best(choice, moe.top_k)) {
    const double weight = moe.normalize_weights ? weights[i] / sum : weights[i];
    out.emplace_back(expert, weight * moe.routed_scaling_factor);
    ++i;
  }
  return out;
}

Row DenseLayer::experts(const Row& x) const {
  const bool mixtral =
      model_.architecture == "MixtralForCausalLM" && source_.has(prefix_ + "block_sparse_moe.gate.weight");
  const std::string block = mixtral ? "block_sparse_moe." : "mlp.";
  Row out(x.size(), 0.0);
  for (const auto& [index, weight] : chosen(block, x)) {
    const Row result = gated(expert(block, index), x);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * result[i];
  }
  if (model_.moe.num_shared_experts == 0) return out;
  const std::uint64_t width = std::uint64_t{model_.moe.num_shared_experts} * model_.moe.intermediate_size;
  const std::uint64_t hidden = x.size();
  Expert shared;
  shared.gate = read("mlp.shared_experts.gate_proj.weight", {width, hidden}, 0, width * hidden);
  shared.up = read("mlp.shared_experts.up_proj.weight", {width, hidden}, 0, width * hidden);
  shared.down = read("mlp.shared_experts.down_proj.weight", {hidden, width}, 0, width * hidden);
  const Row result = gated(shared, x);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += result[i];
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
  const Row w = read_flat(source_, name, {model_.vocab_size, hidden}, 0, model_.vocab_size * hidden);
  Rows out;
  for (const Row& row : x) out.push_back(times(w, row));
  return out;
}

DenseLayer DenseTensors::layer(std::uint32_t index) const {
  return {model_, source_, fmt::format("{}layers.{}.", prefix_, index)};
}

}  // namespace tpsim::rank
