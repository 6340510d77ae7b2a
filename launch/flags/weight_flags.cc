#include "launch/flags/weight_flags.h"

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {
void declare_weights(FlagSet& flags, WeightArgs& args) {
  flags.add_value(
      "--load-format", "FORMAT",
      "of weights: auto, safetensors (for numeric execution), or dummy, seeded random ones: a "
      "DeepSeek-V2 or gpt-oss is then priced with every token at the same experts (default auto; dummy for a "
      "folder without weights in modeled execution)",
      [&args](std::string_view flag, const std::string& value) {
        word({"auto", "safetensors", "dummy"}, args.load_format.emplace())(flag, value);
      });
  flags.add_value(
      "--dtype", "TYPE",
      "of weights: auto, bfloat16, float16, half, or float32 and float for numeric execution "
      "(default auto: the model's)",
      [&args](std::string_view flag, const std::string& value) {
        word({"auto", "bfloat16", "float16", "half", "float32", "float"}, args.dtype)(flag, value);
        if (args.dtype == "half") args.dtype = "float16";
        if (args.dtype == "float") args.dtype = "float32";
      });
}

void declare_shared_experts(FlagSet& flags, WeightArgs& args) {
  flags.add_switch("--disable-shared-experts-fusion",
                   "shared experts run apart from the routed ones (DeepSeek V3, GLM)",
                   args.disable_shared_experts_fusion);
}

void declare_quantization(FlagSet& flags, WeightArgs& args) {
  flags.add_value(
      "--quantization", "METHOD",
      "fp8 or w8a8_fp8 quantise 16-bit weights while they are loaded; of a quantised checkpoint only "
      "its own method is accepted (default: what its config.json declares)",
      text(args.quantization));
  flags.add_value("--fp8-gemm-backend", "KERNEL",
                  "what multiplies with weights of fp8 in blocks: auto (DeepGEMM where a GPU has it) or "
                  "flashinfer_trtllm, on Blackwell (default auto)",
                  word({"auto", "flashinfer_trtllm"}, args.fp8_gemm_backend));
}

void check_modeled_weights(const WeightArgs& args) {
  if (args.load_format == "safetensors")
    throw_user_error("--load-format safetensors: is for --executor numeric, modeled ranks read no weights");
  if (args.dtype == "float32")
    throw_user_error("--dtype float32: is for --executor numeric, use bfloat16 or float16");
}

}  // namespace tpsim::launch
