// Which model runs on which GPUs, in which formats, computed or priced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct ModelArgs {
  std::string model_path;
  std::string hardware;
  std::uint32_t tp_size = 1;
  std::string executor = "modeled";
  std::optional<std::string> load_format;  // default auto
  std::string dtype = "auto";
  bool disable_shared_experts_fusion = false;
  std::optional<std::uint32_t> context_length;
  std::vector<std::string> rank_slowdown;  // RANK:FACTOR, read by rank/parallel/local_ranks.h
  std::string quantization;                // "": the checkpoint's

  bool numeric() const { return executor == "numeric"; }
  bool dummy_weights() const { return load_format == "dummy"; }
};

void declare_model(FlagSet& flags, ModelArgs& args);
// Further down in the help.
void declare_model_limits(FlagSet& flags, ModelArgs& args);
void declare_quantization(FlagSet& flags, ModelArgs& args);
void check_model(const ModelArgs& args);

}  // namespace tpsim::launch
