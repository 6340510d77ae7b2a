// What encoding images costs on one rank, and what the encoder's weights take of its memory.
//
// The encoder runs eagerly before the text model's pass, once for all images of the pass that are not in the
// embedding cache. It is cut over the ranks like the text model (heads and MLP width, two all-reduces a
// layer), or, with --mm-enable-dp-encoder, whole on every rank, which then share the images: Qwen's by the
// number of their patches, InternVL's tile by tile (multimodal/mm_utils.py of SGLang 0.5.23:
// get_dp_encoder_lb_assignment, run_dp_sharded_vision_model); the slowest decides, and an all-gather follows.
//
// Operators have the prices of the text model's; attention those of attention/full. Compared
// with the encoders of Qwen2.5-VL, Qwen3-VL, Gemma 3 and InternVL, run alone by SGLang 0.5.12 on an H200 in
// 93 cases of resolution, count and backend (tests/calibration/measured/h200-sxm_vision.csv, vision.py): 7 %
// off in the median, 36 % at worst. They also gave the constants of vision_encoder.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "attention/full/full_attention.h"
#include "proto/hardware.pb.h"
#include "rank/config/image_layout.h"
#include "rank/config/vision_config.h"
#include "rank/cost/op_cost.h"
#include "rank/cost/pass_clock.h"

namespace tpsim::rank {

struct ImageSize {
  std::uint32_t width = 0, height = 0;  // pixels
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// A matrix of the encoder on one rank.
struct VisionWeight {
  std::uint64_t k = 0, n = 0;
  std::uint64_t bias = 0;    // elements
  std::uint64_t copies = 1;  // layers that have one
  std::uint64_t elements() const { return copies * (k * n + bias); }
};

// How the encoder is shared among the `ranks` ranks that serve the same requests.
struct VisionSharing {
  std::uint32_t ranks = 1;
  bool data_parallel = false;
  std::uint32_t tp_size() const { return data_parallel ? 1 : ranks; }
};

// Bytes of the encoder and its projector on one rank, in 16 bit.
std::uint64_t vision_weight_bytes(const VisionConfig& vision, const VisionSharing& sharing);

struct EncoderCost {
  double seconds = 0;  // of the slowest rank, launches included
  double flops = 0;
  double memory_bytes = 0;
  double communicated_bytes = 0;

  EncoderCost& operator+=(const EncoderCost& other) {
    seconds += other.seconds;
    flops += other.flops;
    memory_bytes += other.memory_bytes;
    communicated_bytes += other.communicated_bytes;
    return *this;
  }
};

class VisionEncoder {
 public:
  // REQUIRES: vision.present().
  VisionEncoder(const VisionConfig& vision, const VisionSharing& sharing,
                const proto::HardwareProfile& profile, const attention::FullAttentionDescription& kernel);

  const VisionConfig& config() const { return vision_; }
  // The images of one pass. Throws UserError as image_layout() does.
  EncoderCost encode(std::span<const ImageSize> images) const;
  // Bytes of what encoding one image leaves behind.
  std::uint64_t embedding_bytes(const ImageSize& image) const;

 private:
  // What one rank is given.
  struct Load {
    double images = 0;
    double rows = 0;      // patches and class tokens
    double embedded = 0;  // tokens
    std::vector<attention::SequenceGroup> sequences, windows;
    void add(const ImageLayout& layout);
  };
  struct Sum;
  std::vector<Load> shares(const std::vector<ImageLayout>& layouts) const;
  // `projected`: tokens that the rank projects.
  EncoderCost run(const Load& load, double projected) const;
  void transformer(const Load& load, Sum& sum) const;
  void projector(double tokens, Sum& sum) const;

  VisionConfig vision_;
  VisionSharing sharing_;
  OperatorCosts costs_;
  attention::FullAttention attention_;
  double convolution_flops_;
  PassClock clock_;
};

// The embeddings of images that a rank keeps: SGLang's MultiModalStaticCache (0.5.23
// mem_cache/multimodal_cache.py) under SGLANG_VLM_CACHE_SIZE_MB. Least recently used first; what is larger
// than the cache is not kept.
class EmbeddingCache {
 public:
  explicit EmbeddingCache(std::uint64_t bytes) : capacity_(bytes) {}

  // Whether `content` is there; it was then used last.
  bool use(std::uint64_t content) {
    const auto found = entries_.find(content);
    if (found == entries_.end()) return false;
    order_.splice(order_.begin(), order_, found->second);
    return true;
  }
  // Returns what had to go for it. REQUIRES: !use(content).
  std::vector<std::uint64_t> keep(std::uint64_t content, std::uint64_t bytes) {
    std::vector<std::uint64_t> gone;
    if (bytes > capacity_) return gone;
    while (bytes_ + bytes > capacity_) {
      gone.push_back(order_.back().content);
      bytes_ -= order_.back().bytes;
      entries_.erase(order_.back().content);
      order_.pop_back();
    }
    order_.push_front({content, bytes});
    entries_.emplace(content, order_.begin());
    bytes_ += bytes;
    return gone;
  }

  std::uint64_t bytes() const { return bytes_; }
  std::size_t size() const { return entries_.size(); }

  template <typename Archive>
  void serialize(Archive& archive) {
    std::vector<Entry> entries(order_.begin(), order_.end());
    archive(bytes_, entries);
    if constexpr (Archive::kReads) {
      order_.assign(entries.begin(), entries.end());
      entries_.clear();
      for (auto entry = order_.begin(); entry != order_.end(); ++entry)
        entries_.emplace(entry->content, entry);
    }
  }

 private:
  struct Entry {
    std::uint64_t content = 0;
    std::uint64_t bytes = 0;
  };
  std::uint64_t capacity_;
  std::uint64_t bytes_ = 0;
  std::list<Entry> order_;  // used last in front
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> entries_;
};

}  // namespace tpsim::rank
