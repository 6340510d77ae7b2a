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

#include <cstdint>
#include <span>
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

}  // namespace tpsim::rank
