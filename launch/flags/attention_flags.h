// Attention backends, and pages and format of the KV cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"

namespace tpsim::launch {

// A backend, or a hybrid pair with one for prefill and one for decode.
struct BackendPair {
  std::string prefill;
  std::string decode;

  // SGLang's spelling: "fa3", or "flashinfer+fa3" for a pair.
  std::string name() const { return prefill == decode ? prefill : prefill + "+" + decode; }
};

struct AttentionArgs {
  std::optional<std::string> attention_backend;
  std::optional<std::string> prefill_attention_backend;
  std::optional<std::string> decode_attention_backend;
  std::vector<BackendPair> attention_backends;  // compare
  bool all_attention_backends = false;          // compare: whatever can run (launch/simulation/sweep.h)
  std::optional<std::string> nsa_prefill_backend, nsa_decode_backend;  // kernels of sparse attention
  std::optional<std::uint32_t> page_size;
  std::string kv_cache_dtype = "auto";
  bool disable_chunked_prefix_cache = false;  // MLA models
  bool flashinfer_mla_disable_ragged = false;
};

// `compare` takes a list of backends.
void declare_attention(FlagSet& flags, AttentionArgs& args, bool compare);
// Pages and format of the KV cache alone.
void declare_cache(FlagSet& flags, AttentionArgs& args);
// Of MLA models, further down in the help.
void declare_mla(FlagSet& flags, AttentionArgs& args);
// What modeled execution takes no part of.
void check_modeled_cache(const AttentionArgs& args);

}  // namespace tpsim::launch
