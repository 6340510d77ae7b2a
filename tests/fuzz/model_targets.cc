#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>

#include "attention/selection/registry.h"
#include "proto/base/error.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/cost/hardware.h"
#include "rank/llm/memory.h"
#include "rank/llm/modeled_forward.h"
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
    check(layer.rope < model.ropes.size() || layer.rope == rank::LayerConfig::kNoRope,
          "a layer's rope is there");
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

// A prefill, a decode and a mixed pass on one of `tp` ranks.
void check_prices(const rank::ModelConfig& model, const proto::HardwareProfile& hardware, std::uint32_t tp) {
  const rank::Shard shard = rank::make_shard(model, tp, 0);
  const rank::BatchDefaults defaults = rank::default_batches(hardware, tp, /*larger_below_35_gib=*/true);
  const double fraction = rank::default_mem_fraction(
      hardware, {.tp_size = tp, .activation_tokens = defaults.chunked_prefill_size});
  check(rank::kv_capacity(hardware, model, shard, fraction, NumberFormat::kBf16, 1).tokens > 0, "a pool");
  constexpr std::array<std::uint32_t, 2> kPrefixes = {0, 5000};
  constexpr std::array<std::uint32_t, 2> kExtends = {300, 1};
  constexpr std::array<std::uint32_t, 3> kDecodes = {1, 70, 9000};
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    const attention::BackendRow& row = backend->row;
    if (row.sparse != model.is_sparse()) continue;
    if (model.is_mla() ? !row.has_mla && !row.sparse : !row.has_mha) continue;
    if (row.dual_chunk != model.dual_chunk.enabled()) continue;
    rank::ModeledForward rank(model, hardware, shard,
                              attention::create_attention_backend(std::string(row.name), hardware, 1), {});
    for (const proto::ForwardMode mode : {proto::EXTEND, proto::DECODE, proto::MIXED}) {
      if (mode == proto::DECODE && row.prefill_only) continue;
      attention::ForwardMetadata metadata;
      metadata.forward_mode = mode;
      if (mode != proto::DECODE) {
        metadata.extend_prefix_lens = kPrefixes;
        metadata.extend_lens = kExtends;
      }
      if (mode != proto::EXTEND) metadata.decode_seq_lens = kDecodes;
      const rank::StepCost cost = rank.forward(metadata);
      for (const double seconds :
           {cost.attention, cost.gemm, cost.collective, cost.other, cost.launch, cost.host_seconds})
        if (!(seconds >= 0 && seconds < 1e18))
          throw std::logic_error(fmt::format("{} prices a part of a pass at {} seconds", row.name, seconds));
      check(cost.attention > 0 && cost.gemm > 0, "nothing is free");
    }
  }
}

void read_hardware(std::string_view bytes) {
  static const rank::ModelConfig model = rank::load_model_config("llama-3.1-8b");
  std::optional<proto::HardwareProfile> hardware;
  try {
    hardware = rank::parse_hardware(std::string(bytes), "fuzzed");
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("fuzzed"), "a complaint begins with the file's name");
    return;
  }
  try {
    check_prices(model, *hardware, 8);
  } catch (const UserError& error) {  // the model does not fit
    check(std::string_view(error.what()).starts_with("--"), "a complaint names its flag");
  }
}

void read_model_config(std::string_view bytes) {
  static const proto::HardwareProfile hardware = rank::load_hardware("b200");
  try {
    const rank::ModelConfig model = rank::parse_model_config(std::string(bytes), "fuzzed");
    check_model(model);
    try {
      check_prices(model, hardware, 2);
    } catch (const UserError& error) {  // cannot be cut, or does not fit
      check(std::string_view(error.what()).starts_with("--"), "a complaint names its flag");
    }
  } catch (const UserError& error) {
    check(std::string_view(error.what()).starts_with("fuzzed"), "a complaint begins with the file's name");
  }
}

constexpr std::array<FuzzTarget, 2> kTargets = {
    {{"model_config", read_model_config}, {"hardware", read_hardware}}};

}  // namespace

std::span<const FuzzTarget> model_targets() { return kTargets; }

}  // namespace tpsim::fuzz
