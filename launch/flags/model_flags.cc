#include "launch/flags/model_flags.h"

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {

void declare_model(FlagSet& flags, ModelArgs& args) {
  flags.add_value("--model-path,--model", "MODEL",
                  "catalogue name, or a folder with a Hugging Face config.json (required)",
                  text(args.model_path));
  flags.add_value("--hardware", "GPU",
                  "GPU of the catalogue, see `tpsim backends` (required; numeric execution takes the "
                  "backends' plans for it, default h200-sxm)",
                  text(args.hardware));
  flags.add_value("--tp-size,--tp,--tensor-parallel-size", "N", "GPUs of the deployment (default 1)",
                  count(args.tp_size, 1, 1024));
  flags.add_value("--executor", "KIND",
                  "modeled: ranks price their batches; numeric: they compute them (default modeled)",
                  word({"modeled", "numeric"}, args.executor));
  flags.add_value("--load-format", "FORMAT",
                  "of weights: auto, safetensors (for numeric execution), or dummy, seeded random ones: a "
                  "DeepSeek-V2 or gpt-oss is then priced with every token at the same experts (default auto; "
                  "dummy for a folder without weights in modeled execution)",
                  word({"auto", "safetensors", "dummy"}, args.load_format));
  flags.add_value("--dtype", "TYPE",
                  "of weights: auto, bfloat16, float16, half, or float32 and float for numeric execution "
                  "(default auto: the model's)",
                  word({"auto", "bfloat16", "float16", "half", "float32", "float"}, args.dtype,
                       {{"half", "float16"}, {"float", "float32"}}));
}

void declare_model_limits(FlagSet& flags, ModelArgs& args) {
  flags.add_switch("--disable-shared-experts-fusion",
                   "shared experts run apart from the routed ones (DeepSeek V3, GLM)",
                   args.disable_shared_experts_fusion);
  flags.add_value("--context-length", "TOKENS", "prompt and output together (default: the model's)",
                  count(args.context_length, 2));
  flags.add_list(
      "--rank-slowdown", "RANK:FACTOR", "makes ranks compute slower, for example 3:1.2 (several allowed)",
      [&args](std::string_view, const std::vector<std::string>& values) { args.rank_slowdown = values; });
}

void declare_quantization(FlagSet& flags, ModelArgs& args) {
  flags.add_value("--quantization", "METHOD",
                  "fp8 or w8a8_fp8 quantise 16-bit weights while they are loaded; of a quantised checkpoint "
                  "only its own method is accepted (default: what its config.json declares)",
                  text(args.quantization));
}

void check_model(const ModelArgs& args) {
  if (args.model_path.empty())
    throw_user_error("--model-path: is required, a catalogue name or a folder with a config.json");
  if (args.numeric() && !args.rank_slowdown.empty())
    throw_user_error("--rank-slowdown: is for --executor modeled, numeric ranks take the time they take");
  if (!args.numeric() && args.hardware.empty())
    throw_user_error("--hardware: is required, for example h200-sxm");
  if (!args.numeric() && args.load_format == "safetensors")
    throw_user_error("--load-format safetensors: is for --executor numeric, modeled ranks read no weights");
  if (!args.numeric() && args.dtype == "float32")
    throw_user_error("--dtype float32: is for --executor numeric, use bfloat16 or float16");
}

}  // namespace tpsim::launch
