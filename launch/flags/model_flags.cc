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
}

void declare_model_limits(FlagSet& flags, ModelArgs& args) {
  flags.add_value("--context-length", "TOKENS", "prompt and output together (default: the model's)",
                  count(args.context_length, 2));
  flags.add_list(
      "--rank-slowdown", "RANK:FACTOR", "makes ranks compute slower, for example 3:1.2 (several allowed)",
      [&args](std::string_view, const std::vector<std::string>& values) { args.rank_slowdown = values; });
}

void check_model(const ModelArgs& args) {
  if (args.model_path.empty())
    throw_user_error("--model-path: is required, a catalogue name or a folder with a config.json");
  if (args.numeric() && !args.rank_slowdown.empty())
    throw_user_error("--rank-slowdown: is for --executor modeled, numeric ranks take the time they take");
  if (!args.numeric() && args.hardware.empty())
    throw_user_error("--hardware: is required, for example h200-sxm");
}

}  // namespace tpsim::launch
