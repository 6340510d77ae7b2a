#include <algorithm>
#include <cstddef>
#include <list>
#include <string>
#include <utility>

#include "proto/base/error.h"
#include "rank/llm/layers.h"

namespace tpsim::rank {
namespace {

// The layers that may have this weight: with experts, without, or all.
bool may_have(const WeightSpec& weight, const LayerConfig& layer) {
  const std::string& tensor = weight.slices.front().tensor;
  if (weight.role == WeightRole::kExperts || tensor.starts_with("mlp.shared_expert") ||
      tensor.starts_with("mlp.fc"))
    return layer.moe;
  return !tensor.starts_with("mlp.") || (!layer.moe && !layer.bare);
}

// Blocks of scales are not cut (Fp8LinearMethod::validate_block_quant_shapes): the part of the weight that a
// rank has must be whole blocks.
void check_block(const WeightSpec& weight, const std::string& model) {
  const WeightFormat& format = weight.format;
  if (format.block_n <= 1 || weight.sharding == Sharding::kReplicated) return;
  const bool cut = weight.sharding == Sharding::kRow
                       ? weight.slices.front().width < weight.slices.front().columns
                       : weight.slices.front().count < weight.slices.front().rows;
  if (!cut) return;
  const std::uint64_t size = weight.sharding == Sharding::kRow ? weight.k : weight.slices.front().count;
  const std::uint32_t block = weight.sharding == Sharding::kRow ? format.block_k : format.block_n;
  if (size % block == 0) return;
  throw_user_error(
      "--tp: {} of {} is quantised in blocks of {}, and a rank's part of {} is not a multiple of it; use a "
      "smaller --tp, or --ep-size for experts",
      weight.name, model, block, size);
}

constexpr std::uint64_t kMebibyte = 1 << 20;

// c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11: sizes in steps of 512 bytes; above 1 MiB out of segments
// of 20 MiB, from 10 MiB on of the size itself in steps of 2 MiB; the smallest free block that fits, cut
// where more than 1 MiB is left; neighbours that are free become one. Smaller blocks are left out.
class CachingAllocator {
 public:
  struct Block {
    std::uint64_t size = 0;
    bool free = true;
    std::size_t segment = 0;
  };
  using Handle = std::list<Block>::iterator;

  Handle allocate(std::uint64_t bytes) {
    bytes = (bytes + 511) / 512 * 512;
    Handle best = blocks_.end();
    for (Handle it = blocks_.begin(); it != blocks_.end(); ++it) {
      if (it->free && it->size >= bytes && (best == blocks_.end() || it->size < best->size)) best = it;
    }
    if (best == blocks_.end()) {
      const std::uint64_t size = bytes < 10 * kMebibyte
                                     ? 20 * kMebibyte
                                     : (bytes + 2 * kMebibyte - 1) / (2 * kMebibyte) * (2 * kMebibyte);
      best = blocks_.insert(blocks_.end(), {size, true, segments_++});
    }
    if (const std::uint64_t rest = best->size - bytes; rest > kMebibyte) {
      blocks_.insert(std::next(best), {rest, true, best->segment});
      best->size = bytes;
    }
    best->free = false;
    return best;
  }
  void free(Handle block) {
    block->free = true;
    const Handle next = std::next(block);
    if (next != blocks_.end() && next->free && next->segment == block->segment) {
      block->size += next->size;
      blocks_.erase(next);
    }
    if (block == blocks_.begin()) return;
    const Handle before = std::prev(block);
    if (!before->free || before->segment != block->segment) return;
    before->size += block->size;
    blocks_.erase(block);
  }
  // After giving back the segments that are wholly free.
  std::uint64_t reserved_bytes() const {
    std::uint64_t bytes = 0;
    for (auto it = blocks_.begin(); it != blocks_.end();) {
      auto end = it;
      std::uint64_t size = 0;
      bool used = false;
      for (; end != blocks_.end() && end->segment == it->segment; ++end) {
        size += end->size;
        used = used || !end->free;
      }
      if (used) bytes += size;
      it = end;
    }
    return bytes;
  }

 private:
  std::list<Block> blocks_;  // the blocks of a segment stand together, in their order
  std::size_t segments_ = 0;
};

// The quantised copy, a byte each; its scales are another, small allocation.
std::uint64_t copy_bytes(const WeightSpec& weight) { return weight.n * weight.k; }

bool is_copied(const WeightSpec& weight) {
  return weight.role == WeightRole::kLinear && weight.format.quantized() && copy_bytes(weight) > kMebibyte;
}

}  // namespace

std::vector<WeightSpec> with_formats(const ModelConfig& model, std::vector<WeightSpec> weights) {
  const QuantizationConfig& quantization = model.quantization;
  if (!quantization.quantized()) return weights;
  std::vector<WeightSpec> out;
  for (WeightSpec& weight : weights) {
    if (weight.name == "lm_head") weight.format = quantization.of("lm_head");
    if (!weight.quantised || weight.slices.empty()) {
      out.push_back(std::move(weight));
      continue;
    }
    const std::string module =
        weight.role == WeightRole::kExperts ? "mlp.experts" : weight.slices.front().tensor;
    std::uint32_t quantised = 0;
    std::uint32_t seen = 0;
    WeightFormat format;
    for (std::size_t i = 0; i < model.layers.size() && seen < weight.layers; ++i) {
      if (!may_have(weight, model.layers[i])) continue;
      ++seen;
      const WeightFormat found =
          quantization.of("model.layers." + std::to_string(model.first_layer + i) + "." + module);
      if (!found.quantized()) continue;
      format = found;
      ++quantised;
    }
    const std::uint32_t plain = weight.layers - quantised;
    if (quantised > 0) {
      WeightSpec& part = out.emplace_back(weight);
      part.format = format;
      part.layers = quantised;
    }
    if (plain > 0) {
      weight.layers = plain;
      out.push_back(std::move(weight));
    }
  }
  return out;
}

void check_blocks(const std::vector<WeightSpec>& weights, const std::string& model) {
  for (const WeightSpec& weight : weights) check_block(weight, model);
}

std::uint64_t loading_leftover_bytes(const std::vector<WeightSpec>& weights) {
  CachingAllocator allocator;
  std::vector<CachingAllocator::Handle> originals;
  std::uint32_t layers = 0;
  for (const WeightSpec& weight : weights)
    layers = is_copied(weight) ? std::max(layers, weight.layers) : layers;
  const auto for_each = [&](const auto& act) {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (const WeightSpec& weight : weights) {
        if (is_copied(weight) && layer < weight.layers) act(weight);
      }
    }
  };
  for_each(
      [&](const WeightSpec& weight) { originals.push_back(allocator.allocate(2 * weight.n * weight.k)); });
  std::uint64_t kept = 0;
  std::size_t next = 0;
  for_each([&](const WeightSpec& weight) {
    allocator.allocate(copy_bytes(weight));
    allocator.free(originals[next++]);
    kept += copy_bytes(weight);
  });
  return allocator.reserved_bytes() - kept;
}

}  // namespace tpsim::rank
