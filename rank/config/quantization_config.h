// How the weights of a model are stored and multiplied: what `quantization_config` of a config.json (or
// ModelOpt's hf_quant_config.json) says of a checkpoint, and what --quantization makes of it.
//
// A module is named as SGLang names it while it builds a model ("model.layers.3.self_attn.qkv_proj",
// "model.layers.3.mlp.experts"). Embeddings, norms, the router and (but for GPTQ with "lm_head": true) the
// head stay 16 bit under every method. Which other modules a method leaves alone, and by what pattern they
// are named, follows SGLang 0.5.12's layers/quantization (is_layer_skipped, should_ignore_layer,
// is_layer_skipped_awq, is_layer_excluded).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "proto/hardware.pb.h"
#include "rank/config/weight_format.h"

namespace tpsim::rank {

struct QuantizationConfig {
  // How a method's list of modules that stay 16 bit is read.
  enum class Pattern : std::uint8_t {
    kPath,          // whole components of the module's path (fp8)
    kSubstring,     // anywhere in it (awq)
    kEqualOrRegex,  // anywhere in it, in any case, or "re:" and an expression that the path begins with
                    // (compressed-tensors)
    kWildcard,      // kPath, or equal to the path or to a component of it with * for anything (ModelOpt)
  };

  std::string method;         // SGLang's name of it; empty: 16 bit
  bool online = false;        // the checkpoint is 16 bit and is quantised while it is loaded
  bool kv_cache_fp8 = false;  // the checkpoint asks for fp8_e4m3 where --kv-cache-dtype is auto
  WeightFormat linear;
  WeightFormat experts;
  WeightFormat head;
  Pattern pattern = Pattern::kPath;
  std::vector<std::string> ignored;             // modules that stay 16 bit
  std::vector<std::regex> ignored_expressions;  // of kEqualOrRegex and of GPTQ's "dynamic"
  int gptq_zero_offset = 1;                     // added to GPTQ's zero points; 0 in its format "gptq_v2"
  std::uint32_t least_capability = 0;           // SM number x 10 of the oldest GPU: 89 = Ada

  bool quantized() const { return linear.quantized() || experts.quantized(); }
  // The scheme of one module. Fused modules (qkv_proj, gate_up_proj, experts) stay 16 bit where the parts
  // that they are made of do.
  WeightFormat of(std::string_view module) const;
};

// The quantisation that a config.json declares ("quantization_config", or "compression_config"); none where
// it has neither. Throws UserError that names the key where tpsim does not know the method or its numbers.
QuantizationConfig read_quantization(const nlohmann::json& config, const std::string& where);
// The same of ModelOpt's hf_quant_config.json, which counts where the config.json says nothing.
QuantizationConfig read_hf_quant_config(const nlohmann::json& json, const std::string& where);

// What a server makes of `checkpoint` under --quantization `flag` ("": not given), as ModelConfig's
// _verify_quantization does. Throws UserError naming --quantization where the two do not go together, the
// name is not one of SGLang's, or tpsim has no price for it.
QuantizationConfig resolve_quantization(const QuantizationConfig& checkpoint, const std::string& flag);

// Throws UserError where the GPU is older than the method's kernels (get_min_capability), or has no fp4
// arithmetic for nvfp4.
void check_capability(const QuantizationConfig& config, const proto::HardwareProfile& hardware);

}  // namespace tpsim::rank
