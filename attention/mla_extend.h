// How the layers of an MLA model attend in an extend pass: over the latents themselves (absorbed), or over
// keys and values of every head that kv_b_proj expands from them.
//
// Source: AttnForwardMethod and the handlers of SGLang's models/deepseek_common/attention_backend_handler.py,
// the methods of forward_mha.py beside it, and the chunks of
// model_executor/forward_batch_deepseek_mha_mixin.py (0.5.12 and 0.5.23, which agree but where a backend's
// rule says otherwise).
#pragma once

#include <cstdint>

#include "attention/forward_metadata.h"

namespace tpsim::attention {

enum class MlaForwardMethod : std::uint8_t {
  kAbsorbed,      // MLA: queries meet the latent cache; prefix and new tokens alike
  kMha,           // MHA: no request has a cached prefix; the new tokens' latents are expanded
  kMhaOneShot,    // MHA_ONE_SHOT: cached latents are fetched and all are expanded at once
  kMhaChunkedKv,  // MHA_CHUNKED_KV: the new tokens first, then the prefix chunk by chunk, merged by
                  // log-sum-exp
};

// What the user may set.
struct MlaOptions {
  bool chunked_prefix_cache = true;                     // --disable-chunked-prefix-cache: false
  bool ragged = true;                                   // --flashinfer-mla-disable-ragged: false
  std::uint32_t chunked_prefix_cache_threshold = 8192;  // SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD, tokens
  std::uint32_t max_kv_chunk_capacity = 128 * 1024;     // SGLANG_MAX_KV_CHUNK_CAPACITY, tokens
};

// What the handler of a backend does with a batch that has a cached prefix.
enum class MlaPrefix : std::uint8_t {
  kAbsorbed,       // absorbed
  kFromThreshold,  // expanded from chunked_prefix_cache_threshold cached tokens of the batch on
  kExpanded,       // always expanded
};

struct MlaRule {
  MlaPrefix prefix = MlaPrefix::kAbsorbed;
  bool one_shot = false;  // at once where the batch has no more than max_kv_chunk_capacity tokens
  bool ragged = false;    // the expanded form needs FlashInfer's ragged wrapper
  // Before the absorbed kernel, rotated and other parts of queries and keys are put together by kernels of
  // their own: the backend is not among FORWARD_ABSORB_CORE_ATTENTION_BACKENDS
  // (models/deepseek_common/utils.py).
  bool joins = false;
};

// How the layers of one extend pass attend.
struct MlaExtend {
  MlaForwardMethod method = MlaForwardMethod::kAbsorbed;
  std::uint32_t chunk_tokens = 0;  // kMhaChunkedKv: of every request's prefix, in one chunk
  bool joins = false;              // kAbsorbed, decodes too: MlaRule::joins
  bool expanded() const { return method != MlaForwardMethod::kAbsorbed; }
};

// Of the batch. A pass in captured pieces is absorbed: the shapes of the others vary with the
// prefix.
MlaExtend mla_extend(const MlaRule& rule, const MlaOptions& options, const ForwardMetadata& metadata);

}  // namespace tpsim::attention
