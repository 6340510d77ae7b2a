#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "proto/error.h"
#include "rank/model/model_config.h"
#include "tests/fuzz/fuzz_targets.h"

namespace tpsim::fuzz {
namespace {

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// What model_config.h promises of every model.
void check_model(const rank::ModelConfig& model) {
  check(model.hidden_size > 0 && model.num_layers > 0 && model.vocab_size > 0, "a model has a size");
  check(model.num_attention_heads > 0 && model.num_key_value_heads > 0 && model.head_dim > 0, "heads");
  check(model.context_length > 0, "a context");
  std::uint64_t layers = 0;
  for (const rank::AttentionKind& kind : model.attention) layers += kind.num_layers;
  check(layers == model.num_layers, "every layer attends");
  check(model.layers.size() == model.num_layers && !model.ropes.empty(), "every layer is described");
  std::uint64_t with_experts = 0;
  for (const rank::LayerConfig& layer : model.layers) {
    check(layer.rope < model.ropes.size(), "a layer's rope is there");
    with_experts += layer.moe ? 1 : 0;
  }
  check(with_experts == model.moe.num_layers, "layers with experts are counted");
  check(std::isfinite(model.attention_scale) && model.attention_scale > 0, "scores have a scale");
  if (model.moe.num_experts > 0) {
    check(model.moe.num_groups > 0 && model.moe.num_experts % model.moe.num_groups == 0, "groups are whole");
    check(model.moe.top_k > 0 && model.moe.top_k <= model.moe.num_experts, "chosen experts are there");
    check(model.moe.num_layers <= model.num_layers, "layers with experts are layers");
  }
}

void read_model_config(std::string_view bytes) {
  try {
    check_model(rank::parse_model_config(std::string(bytes), "fuzzed"));
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("fuzzed"), "a complaint begins with the file's name");
  }
}

constexpr std::array<FuzzTarget, 1> kTargets = {{{"model_config", read_model_config}}};

}  // namespace

std::span<const FuzzTarget> model_targets() { return kTargets; }

}  // namespace tpsim::fuzz
