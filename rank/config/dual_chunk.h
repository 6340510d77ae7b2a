// Dual chunk attention (An et al. 2024; Qwen2.5-1M): a sequence is cut into chunks, and the rotations are
// such that no query is ever farther from a key than the model was trained for.
//
// Keys are rotated by their place in their chunk. A query is rotated three times: for its own chunk, for the
// chunk before it (succ) and for all before that (inter). Within a chunk distances stay what they are; so do
// those of the nearest `local_size` tokens of the chunk before; farther ones stop at chunk_size.
//
// Source: SGLang 0.5.12, layers/rotary_embedding/rope_variant.py (DualChunkRotaryEmbedding), the last release
// that has it. Its two other rotations only choose tokens for the sparse variant.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tpsim::rank {

struct DualChunkConfig {
  std::uint32_t chunk_size = 0;  // tokens; the largest distance. 0: plain attention
  std::uint32_t local_size = 0;  // tokens
  // Beyond it q.k grows with the logarithm of the length, as with YaRN. 0: it does not.
  std::uint32_t original_max_position_embeddings = 0;
  bool dense_said = false;  // the config itself turns the sparse variant off

  bool enabled() const { return chunk_size > 0; }
  std::uint32_t chunk_len() const { return chunk_size - local_size; }
  // Factor on q.k in a sequence of `seq_len` tokens: once on the query and once on the key.
  double scaling(std::uint32_t seq_len) const {
    if (original_max_position_embeddings == 0 || seq_len <= original_max_position_embeddings) return 1;
    const double once = 0.1 * std::log(static_cast<double>(seq_len) / original_max_position_embeddings) + 1;
    return once * once;
  }
};

// By how many steps the key and the query of the token at `position` are rotated.
struct ChunkRotations {
  std::uint32_t key = 0;
  std::uint32_t query = 0;        // meeting its own chunk
  std::uint32_t query_succ = 0;   // meeting the chunk before
  std::uint32_t query_inter = 0;  // meeting all before that
};
inline ChunkRotations chunk_rotations(const DualChunkConfig& config, std::uint32_t position) {
  const std::uint32_t len = config.chunk_len();
  const std::uint32_t in_chunk = position % len;
  return {in_chunk, in_chunk, std::min(in_chunk + len, config.chunk_size),
          std::min(2 * len - 1, config.chunk_size)};
}

}  // namespace tpsim::rank
