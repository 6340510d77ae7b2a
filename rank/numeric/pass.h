// What the layers of one forward pass share: positions, slots, rotations, plans, masks of images, and
// scratch.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "attention/math/attention_math.h"
#include "rank/config/rope.h"
#include "rank/linear/thread_pool.h"
#include "rank/llm/layers.h"
#include "rank/numeric/token_batch.h"

namespace tpsim::rank {

// Adds the time of its life to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_;
};

// The plan for the layers that attend alike.
struct LayerPlan {
  attention::LayerShape shape;
  attention::DecodePlan decode;
  attention::ExtendPlan extend;
  std::vector<attention::ExtendTile> tiles;
  attention::SparsePlan sparse;
  // Of a tree of drafts, of padding, and of images: what each token sees, for each request; empty: causality
  // decides.
  std::vector<std::vector<std::uint8_t>> masks;
  std::vector<const std::uint8_t*> mask_views;
};

// Gemma 3's attention among the tokens of an image, as SGLang serves it.
//
// The model's tokens of one image see each other, later ones, too; text and other images are causal. In
// SGLang (0.5.12 and 0.5.23, Gemma3ForConditionalGeneration.prepare_attn_masks) that is so under the triton
// backend alone, in passes that extend and do nothing else, and for images that begin in the pass: what is
// left of one that a chunk or a cached prefix cuts is causal. And the kernel's loop over the new tokens ends
// with its tile of queries (extend_attention.py: cur_block_m_end), so that later tokens are seen in the own
// tile only. Where an image lies in one tile of a pass this is what Transformers computes.

// Of each of a request's `q_len` new tokens, the end of what it sees (at least its own position + 1). `tile`:
// query tokens of a tile of the kernel. `images`: of the request, in order.
std::vector<std::uint32_t> image_sight(std::span<const BatchImage> images, std::uint32_t prefix,
                                       std::uint32_t q_len, std::uint32_t tile);

// The mask [q_len, prefix + q_len] of that, as far as a window (0: none) reaches back; empty where it is the
// causal one.
std::vector<std::uint8_t> image_mask(std::span<const BatchImage> images, std::uint32_t prefix,
                                     std::uint32_t q_len, std::uint32_t tile, std::uint32_t window);

// Where the tokens of a prompt with images stand, for models whose rotation has three positions (Qwen-VL):
// time, row and column.
//
// Text moves on by one in all three. The tokens of an image have the time at which it begins, and its rows
// and columns counted from there; what follows begins after its longer side (get_rope_index of Transformers'
// modeling_qwen2_5_vl.py and modeling_qwen3_vl.py; one frame, whatever the video rules).

// An image in a sequence, as merged patches.
struct ImageSpan {
  std::uint32_t position = 0;  // of its first token
  std::uint32_t rows = 0, columns = 0;
};

// Of the token at `place` of the sequence. `images`: those that begin before it, in order, at least.
inline std::array<std::uint32_t, 3> image_position(std::span<const ImageSpan> images, std::uint32_t place) {
  std::uint32_t skipped = 0;  // tokens that took no time
  for (const ImageSpan& image : images) {
    if (place < image.position) break;
    const std::uint32_t index = place - image.position;
    const std::uint32_t begin = image.position - skipped;
    const std::uint32_t tokens = image.rows * image.columns;
    if (index < tokens) return {begin, begin + index / image.columns, begin + index % image.columns};
    skipped += tokens - (image.rows > image.columns ? image.rows : image.columns);
  }
  return {place - skipped, place - skipped, place - skipped};
}

class Pass {
 public:
  // Works out positions, slots, cosines and plans. The arguments outlive the pass. `images`: where each
  // request's are, if any has some; `both_ways`: the tokens of one see each other (image_mask()).
  Pass(const DualChunkConfig& dual_chunk, std::span<const RotaryEmbedding> ropes, const TokenBatch& batch,
       std::span<const AttentionLayers> layers, std::uint32_t page_size, attention::AttentionBackend& backend,
       std::span<const std::vector<ImageSpan>> images = {}, bool both_ways = false);

  std::uint32_t tokens() const { return static_cast<std::uint32_t>(positions_.size()); }
  std::uint32_t requests() const { return static_cast<std::uint32_t>(batch_.q_lens.size()); }
  const TokenBatch& batch() const { return batch_; }
  std::uint32_t position(std::uint32_t token) const { return positions_[token]; }
  std::uint32_t slot(std::uint32_t token) const { return slots_[token]; }
  // Whose token it is.
  std::uint32_t request(std::uint32_t token) const { return requests_[token]; }
  // [dim / 2] of rope `rope` at a token. With dual chunk attention, whose models have one rope, 0 is for keys
  // and for queries that meet their own chunk.
  static constexpr std::uint32_t kSucc = 1;   // queries that meet the chunk before
  static constexpr std::uint32_t kInter = 2;  // queries that meet all before that
  const float* cos(std::uint32_t rope, std::uint32_t token) const;
  const float* sin(std::uint32_t rope, std::uint32_t token) const;
  const RotaryEmbedding& rope(std::uint32_t rope) const { return ropes_[rope]; }
  // Dual chunk attention's factor on a token's queries.
  float query_scale(std::uint32_t token) const { return query_scales_[token]; }
  // `kind`: LayerConfig::attention.
  const LayerPlan& plan(std::uint32_t kind) const { return plans_[kind]; }
  attention::KernelKind kernel() const { return kernel_; }
  // MLA models: how the layers of an extend attend.
  const attention::MlaExtend& mla() const { return mla_; }
  bool decodes() const { return batch_.metadata.forward_mode == proto::DECODE; }
  std::span<const std::uint32_t> first_rows() const { return first_rows_; }
  // Row of the last new token of each request.
  std::uint32_t last_row(std::uint32_t request) const {
    return first_rows_[request] + batch_.q_lens[request] - 1;
  }

 private:
  void add_masks(LayerPlan& plan) const;
  void add_padding_masks(LayerPlan& plan) const;
  void add_image_masks(LayerPlan& plan) const;

  const TokenBatch& batch_;
  std::span<const RotaryEmbedding> ropes_;
  attention::KernelKind kernel_;
  attention::MlaExtend mla_;
  std::vector<std::uint32_t> positions_, slots_, requests_, first_rows_;
  void add_angles(const RotaryEmbedding& rope, std::span<const std::uint32_t> rotations,
                  std::span<const std::uint32_t> lengths, std::span<const std::vector<ImageSpan>> images);

  std::vector<std::vector<float>> cos_, sin_;  // per rope
  std::vector<float> query_scales_;            // with dual chunk attention only
  std::vector<LayerPlan> plans_;
};

}  // namespace tpsim::rank
