#include "launch/deployment/model.h"

#include <fmt/ranges.h>

#include "proto/base/error.h"

namespace tpsim::launch {

std::uint32_t resolve_context_length(const ModelArgs& args, const rank::ModelConfig& model) {
  if (!args.context_length) return model.context_length;
  if (*args.context_length > model.context_length)
    throw_user_error("--context-length {}: {} was made for at most {} tokens", *args.context_length,
                     model.name, model.context_length);
  return *args.context_length;
}

void write_model(const ModelArgs& args, const proto::HardwareProfile& hardware, std::uint32_t context_length,
                 Rows& rows) {
  rows["model_path"] = args.model_path;
  rows["hardware"] = hardware.name();
  rows["tp_size"] = std::to_string(args.tp_size);
  rows["executor"] = args.executor;
  rows["context_length"] = std::to_string(context_length);
  rows["rank_slowdown"] = fmt::format("{}", fmt::join(args.rank_slowdown, " "));
}

}  // namespace tpsim::launch
