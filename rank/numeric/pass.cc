#include "rank/numeric/pass.h"

#include <algorithm>
#include <cstddef>

namespace tpsim::rank {

Pass::Pass(const DualChunkConfig& dual_chunk, std::span<const RotaryEmbedding> ropes, const TokenBatch& batch,
           std::span<const AttentionLayers> layers, std::uint32_t page_size,
           attention::AttentionBackend& backend, std::span<const std::vector<ImageSpan>> images,
           bool both_ways)
    : batch_(batch), ropes_(ropes) {
  std::vector<std::uint32_t> lengths;  // of each token's sequence, after the pass
  const bool tree = !batch.parents.empty();
  for (std::size_t i = 0; i < batch.q_lens.size(); ++i) {
    first_rows_.push_back(static_cast<std::uint32_t>(positions_.size()));
    for (std::uint32_t k = 0; k < batch.q_lens[i]; ++k) {
      const std::uint32_t place = batch.prefix_lens[i] + k;
      slots_.push_back(batch.page_tables[i][place / page_size] * page_size + place % page_size);
      requests_.push_back(static_cast<std::uint32_t>(i));
      if (!tree) {
        positions_.push_back(place);
        lengths.push_back(batch.prefix_lens[i] + batch.q_lens[i]);
        continue;
      }
      // A draft's position is that of its depth; it ends its sequence.
      const std::uint32_t first = first_rows_.back();
      const std::uint32_t position = k == 0 ? place : positions_[first + batch.parents[first + k]] + 1;
      positions_.push_back(position);
      lengths.push_back(position + 1);
    }
  }
  if (dual_chunk.enabled()) {
    std::vector<std::uint32_t> own, succ, inter;
    for (std::size_t t = 0; t < positions_.size(); ++t) {
      const ChunkRotations by = chunk_rotations(dual_chunk, positions_[t]);
      own.push_back(by.query);
      succ.push_back(by.query_succ);
      inter.push_back(by.query_inter);
      query_scales_.push_back(static_cast<float>(dual_chunk.scaling(lengths[t])));
    }
    for (const std::vector<std::uint32_t>* rotations : {&own, &succ, &inter})
      add_angles(ropes_.front(), *rotations, lengths, {});
  } else {
    for (const RotaryEmbedding& rope : ropes_) add_angles(rope, positions_, lengths, images);
  }
  if (batch.metadata.capture_bucket > 0) {
    backend.init_forward_metadata_replay_cuda_graph(batch.metadata);
  } else {
    backend.init_forward_metadata(batch.metadata);
  }
  kernel_ = backend.kernel();
  if (!decodes() && layers.front().shape.form == attention::AttentionForm::kMlaAbsorbed)
    mla_ = backend.mla_extend();
  for (const AttentionLayers& kind : layers) {
    LayerPlan& plan = plans_.emplace_back();
    plan.shape = mla_.expanded() ? kind.expanded : kind.shape;
    if (plan.shape.form == attention::AttentionForm::kBlockSparse ||
        plan.shape.form == attention::AttentionForm::kCompressed)
      continue;  // token by token
    if (kernel_ == attention::KernelKind::kSparse) {
      plan.sparse = backend.sparse_plan(plan.shape);
    } else if (decodes()) {
      plan.decode = backend.decode_plan(plan.shape);
    } else {
      plan.extend = backend.extend_plan(plan.shape);
      attention::extend_tiles(plan.extend, plan.tiles);
      if (tree) add_masks(plan);
      if (!batch.unpadded.empty()) add_padding_masks(plan);
      // Not beside requests that decode: SGLang makes the mask for EXTEND alone.
      if (both_ways && batch.metadata.forward_mode == proto::EXTEND) add_image_masks(plan);
    }
  }
}

// A draft sees the prefix, itself and its ancestors, as far as a window reaches. [q_len, prefix + q_len]
void Pass::add_masks(LayerPlan& plan) const {
  const std::uint32_t window = plan.shape.sliding_window;
  for (std::size_t i = 0; i < batch_.q_lens.size(); ++i) {
    const std::uint32_t prefix = batch_.prefix_lens[i];
    const std::uint32_t count = batch_.q_lens[i];
    const std::uint32_t first = first_rows_[i];
    std::vector<std::uint8_t>& mask = plan.masks.emplace_back(std::size_t{count} * (prefix + count), 0);
    for (std::uint32_t k = 0; k < count; ++k) {
      std::uint8_t* const row = mask.data() + std::size_t{k} * (prefix + count);
      const std::uint32_t end = positions_[first + k] + 1;
      const std::uint32_t begin = window != 0 && end > window ? end - window : 0;
      for (std::uint32_t seen = std::min(begin, prefix); seen < prefix; ++seen) row[seen] = 1;
      for (std::uint32_t node = k;; node = batch_.parents[first + node]) {
        if (positions_[first + node] >= begin) row[prefix + node] = 1;
        if (node == 0) break;
      }
    }
    plan.mask_views.push_back(mask.data());
  }
}

void Pass::add_padding_masks(LayerPlan& plan) const {
  for (std::size_t i = 0; i < batch_.q_lens.size(); ++i) {
    const std::uint32_t count = batch_.q_lens[i];
    std::vector<std::uint8_t>& mask = plan.masks.emplace_back(std::size_t{count} * count, 0);
    for (std::uint32_t k = 0; k < count; ++k)
      std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(k) * count, std::min(k + 1, batch_.unpadded[i]),
                  std::uint8_t{1});
    plan.mask_views.push_back(mask.data());
  }
}

void Pass::add_image_masks(LayerPlan& plan) const {
  for (std::size_t i = 0; i < batch_.images.size(); ++i) {
    plan.masks.push_back(image_mask(batch_.images[i], batch_.prefix_lens[i], batch_.q_lens[i],
                                    plan.extend.tile_m, plan.shape.sliding_window));
  }
  for (const std::vector<std::uint8_t>& mask : plan.masks)
    plan.mask_views.push_back(mask.empty() ? nullptr : mask.data());
}

void Pass::add_angles(const RotaryEmbedding& rope, std::span<const std::uint32_t> rotations,
                      std::span<const std::uint32_t> lengths,
                      std::span<const std::vector<ImageSpan>> images) {
  const std::size_t half = rope.dim() / 2;
  std::vector<float>& cos = cos_.emplace_back(half * rotations.size());
  std::vector<float>& sin = sin_.emplace_back(half * rotations.size());
  for (std::size_t t = 0; t < rotations.size(); ++t) {
    float* const cos_of = cos.data() + t * half;
    float* const sin_of = sin.data() + t * half;
    if (images.empty() || !rope.has_mrope()) {
      rope.angles(rotations[t], lengths[t], cos_of, sin_of);
    } else {
      rope.angles(image_position(images[requests_[t]], rotations[t]), lengths[t], cos_of, sin_of);
    }
  }
}

const float* Pass::cos(std::uint32_t rope, std::uint32_t token) const {
  return cos_[rope].data() + token * (cos_[rope].size() / positions_.size());
}

const float* Pass::sin(std::uint32_t rope, std::uint32_t token) const {
  return sin_[rope].data() + token * (sin_[rope].size() / positions_.size());
}

std::vector<std::uint32_t> image_sight(std::span<const BatchImage> images, std::uint32_t prefix,
                                       std::uint32_t q_len, std::uint32_t tile) {
  std::vector<std::uint32_t> ends(q_len);
  for (std::uint32_t k = 0; k < q_len; ++k) ends[k] = prefix + k + 1;
  for (const BatchImage& image : images) {
    if (image.position < prefix) continue;
    const std::uint32_t end = std::min(image.position + image.tokens, prefix + q_len);
    for (std::uint32_t at = image.position; at < end; ++at) {
      const std::uint32_t tile_end = ((at - prefix) / tile + 1) * tile + prefix;
      ends[at - prefix] = std::min(end, tile_end);
    }
  }
  return ends;
}

std::vector<std::uint8_t> image_mask(std::span<const BatchImage> images, std::uint32_t prefix,
                                     std::uint32_t q_len, std::uint32_t tile, std::uint32_t window) {
  const std::vector<std::uint32_t> ends = image_sight(images, prefix, q_len, tile);
  const std::size_t width = std::size_t{prefix} + q_len;
  std::vector<std::uint8_t> mask;
  bool causal = true;
  for (std::uint32_t k = 0; k < q_len; ++k) causal = causal && ends[k] == prefix + k + 1;
  if (causal) return mask;
  mask.assign(q_len * width, 0);
  for (std::uint32_t k = 0; k < q_len; ++k) {
    const std::uint32_t own_end = prefix + k + 1;
    const std::uint32_t begin = window != 0 && own_end > window ? own_end - window : 0;
    std::fill(mask.begin() + static_cast<std::ptrdiff_t>(k * width + begin),
              mask.begin() + static_cast<std::ptrdiff_t>(k * width + ends[k]), std::uint8_t{1});
  }
  return mask;
}

}  // namespace tpsim::rank
