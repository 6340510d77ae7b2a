// Rotary position embeddings: the angles of each position, for every variant of config.json's rope_scaling.
//
// Sources: Su et al. 2021 (RoFormer); Llama 3.1's frequency scaling; Peng et al. 2023 (YaRN); dynamic NTK.
// Behaviour follows Transformers' modeling_rope_utils.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rank/config/model_config.h"

namespace tpsim::rank {

class RotaryEmbedding {
 public:
  // `dim`: elements that are rotated (ModelConfig::rope_dim). `context_length`: of the config
  // (max_position_embeddings), which dynamic scaling compares lengths with.
  RotaryEmbedding(const RopeConfig& config, std::uint32_t dim, std::uint32_t context_length);

  std::uint32_t dim() const { return dim_; }
  // Factor on cos and sin (YaRN's attention factor; 1 otherwise).
  float attention_factor() const { return attention_factor_; }
  // cos and sin [dim / 2] of one position of a sequence that is `seq_len` tokens long (only dynamic scaling
  // and longrope depend on that), attention factor included.
  void angles(std::uint32_t position, std::uint32_t seq_len, float* cos, float* sin) const;
  // Of a token that has a time, a row and a column. REQUIRES: the config has_mrope().
  void angles(const std::array<std::uint32_t, 3>& position, std::uint32_t seq_len, float* cos,
              float* sin) const;
  bool has_mrope() const { return config_.has_mrope(); }
  // Rotates the first dim elements of a head x in place. config.interleaved: pairs are (0, 1), (2, 3) …; else
  // (0, dim / 2), ….
  void rotate(const float* cos, const float* sin, float* x) const;

 private:
  RopeConfig config_;
  std::uint32_t dim_;
  std::uint32_t context_length_;
  float attention_factor_ = 1;
  std::vector<double> inverse_frequencies_;
  std::vector<std::uint8_t> axes_;  // with mrope, of each pair: 0 time, 1 row, 2 column
};

}  // namespace tpsim::rank
