// Speculative decoding: what drafts, how much, and in modeled execution how much of it is right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

struct SpeculationArgs {
  std::string algorithm;  // EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM; empty: none
  std::string draft_model_path;
  std::optional<std::uint32_t> num_steps, eagle_topk, num_draft_tokens;
  std::uint32_t ngram_max_bfs_breadth = 10;
  std::string attention_mode = "prefill";
  std::optional<std::string> draft_attention_backend;
  // Empty: as the target has it.
  std::string draft_kv_cache_dtype, draft_quantization, moe_a2a_backend;
  std::vector<double> accept_rates;
  bool accept_from_trace = false;
  std::string accept_lengths_file;
  std::string given;  // some flag of these but the algorithm; empty: none was given

  bool verifies_with_prefill() const { return attention_mode == "prefill"; }
};

void declare_speculation(FlagSet& flags, SpeculationArgs& args);

}  // namespace tpsim::launch
