#include "rank/vision/vision_encoder.h"

#include <algorithm>
#include <numeric>

#include "proto/base/ceil_div.h"
#include "rank/config/weight_format.h"

namespace tpsim::rank {
namespace {

constexpr std::uint64_t kChannels = 3;

// Small kernels of a layer that nothing here prices on the device, but the host issues: copies of views,
// lengths of sequences, and, where queries and keys turn, what builds their tables. By the time of encoders
// too small to fill the device: 0.65 to 0.87 ms a layer.
constexpr double kIssued = 2.5, kIssuedRotary = 7;
// Each layer looks up its longest sequence on the host, which waits for the device, and the device then for
// the kernels after it: 0.13 to 0.15 ms a layer, in launches.
constexpr double kDrained = 3;
// Qwen3-VL interpolates the position embeddings of each image by itself: 0.6 ms of the host.
constexpr double kIssuedImage = 13;
// Patches are embedded by a convolution that PyTorch does not run as a matrix product (Qwen3-VL's is one): 20
// to 21 TFLOP/s, of 989 that the tensor cores have.
constexpr double kConvolutionShare = 0.021;
// InternVL resizes its position embeddings for every pass (bicubic, 32 bit).
constexpr double kPositionsResized = 1.66e-3;
// Elements moved of each that the operator is about: layer norm beside the 2 of RMS norm, rotation in 32 bit
// with its tables, the SigLIP activation in three kernels.
constexpr double kLayerNorm = 5, kRotation = 15, kUnfusedGelu = 7;

std::uint64_t patch_elements(const VisionConfig& vision) {
  return kChannels * vision.temporal_patch * vision.patch_size * vision.patch_size;
}

// The projector's matrices, in order.
std::vector<VisionWeight> projector_weights(const VisionConfig& vision, std::uint32_t tp) {
  const std::uint64_t parts = vision.projector_sharded ? tp : 1;
  const std::uint64_t copies = 1 + vision.deepstack;
  // k, n, bias, copies
  if (vision.projector_hidden == 0)  // Gemma 3
    return {{vision.projector_input, vision.out_hidden_size, 0, copies}};
  const std::uint64_t hidden = ceil_div(vision.projector_hidden, parts);
  if (vision.second_projector > 0)  // Llama 4: the adapter, without biases, and a layer that is not cut
    return {{vision.projector_input, hidden, 0, copies},
            {hidden, vision.second_projector, 0, copies},
            {vision.second_projector, vision.out_hidden_size, 0, 1}};
  return {{vision.projector_input, hidden, hidden, copies},
          {hidden, vision.out_hidden_size, vision.out_hidden_size, copies}};
}

}  // namespace

std::uint64_t vision_weight_bytes(const VisionConfig& vision, const VisionSharing& sharing) {
  if (!vision.present()) return 0;
  const std::uint64_t tp = sharing.tp_size();
  const std::uint64_t h = vision.hidden_size;
  // Heads that do not divide evenly are padded (vision_utils.update_vit_attn_dummy_heads_config).
  const std::uint64_t q = ceil_div(vision.num_heads, tp) * vision.head_dim();
  const std::uint64_t width = ceil_div(vision.intermediate_size, tp);
  const std::uint64_t up = (vision.gated_mlp ? 2 : 1) * width;
  const std::uint64_t layers = vision.num_layers;
  std::vector<VisionWeight> weights = {
      {.k = patch_elements(vision), .n = h, .bias = h},
      {.k = h, .n = 3 * q, .bias = 3 * q, .copies = layers},
      {.k = q, .n = h, .bias = h, .copies = layers},
      {.k = h, .n = up, .bias = up, .copies = layers},
      {.k = width, .n = h, .bias = h, .copies = layers},
      {.k = 1, .n = (vision.layer_scale ? 6 : 4) * h, .bias = 0, .copies = layers},  // norms, scales
      {.k = vision.sharded_positions ? ceil_div(vision.position_embeddings, tp) : vision.position_embeddings,
       .n = h}};
  const std::vector<VisionWeight> projector = projector_weights(vision, static_cast<std::uint32_t>(tp));
  weights.insert(weights.end(), projector.begin(), projector.end());
  std::uint64_t elements = 0;
  for (const VisionWeight& weight : weights) elements += weight.elements();
  return elements * static_cast<std::uint64_t>(kElement);
}

// Of one rank, kernel by kernel.
struct VisionEncoder::Sum {
  double device = 0, flops = 0, bytes = 0, communicated = 0, launches = 0;
  double issued = 0, host = 0;  // launches of kernels that are not priced; seconds that the device waits for
  double drained = 0;           // times that the host waits for the device
  void add(const KernelCost& cost, double times = 1) {
    device += cost.seconds * times;
    flops += cost.flops * times;
    bytes += cost.bytes * times;
    launches += cost.launches * times;
  }
};

void VisionEncoder::Load::add(const ImageLayout& layout) {
  images += 1;
  rows += layout.patches;
  embedded += layout.embedded;
  const auto append = [](const std::vector<attention::SequenceGroup>& from,
                         std::vector<attention::SequenceGroup>& to) {
    for (const attention::SequenceGroup& group : from) {
      const auto same = std::find_if(to.begin(), to.end(), [&](const attention::SequenceGroup& other) {
        return other.length == group.length;
      });
      if (same == to.end()) {
        to.push_back(group);
      } else {
        same->count += group.count;
      }
    }
  };
  append(layout.sequences, sequences);
  append(layout.windows, windows);
}

VisionEncoder::VisionEncoder(const VisionConfig& vision, const VisionSharing& sharing,
                             const proto::HardwareProfile& profile,
                             const attention::FullAttentionDescription& kernel)
    : vision_(vision),
      sharing_(sharing),
      costs_(profile),
      attention_(profile, kernel),
      convolution_flops_(kConvolutionShare * profile.dense_flops_bf16()),
      clock_(profile) {}

std::uint64_t VisionEncoder::embedding_bytes(const ImageSize& image) const {
  return image_layout(vision_, image.width, image.height).embedded * vision_.embedding_token_bytes();
}

// What each rank encodes: all of it, or its share.
std::vector<VisionEncoder::Load> VisionEncoder::shares(const std::vector<ImageLayout>& layouts) const {
  std::vector<Load> loads(1);
  if (!sharing_.data_parallel || sharing_.ranks == 1) {
    for (const ImageLayout& layout : layouts) loads[0].add(layout);
    return loads;
  }
  if (vision_.rule == ImageRule::kClosestRatio) {
    // Tiles are equal; every rank gets as many, padding included.
    std::uint32_t tiles = 0;
    for (const ImageLayout& layout : layouts) tiles += layout.tiles;
    ImageLayout tile = layouts.front();
    tile.patches /= tile.tiles;
    tile.embedded /= tile.tiles;
    for (attention::SequenceGroup& group : tile.sequences) group.count = 1;
    for (std::uint64_t i = 0; i < ceil_div(tiles, sharing_.ranks); ++i) loads[0].add(tile);
    return loads;
  }
  loads.resize(sharing_.ranks);
  std::vector<std::size_t> order(layouts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return layouts[a].patches > layouts[b].patches; });
  for (const std::size_t i : order) {
    std::min_element(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
      return a.rows < b.rows;
    })->add(layouts[i]);
  }
  return loads;
}

void VisionEncoder::transformer(const Load& load, Sum& sum) const {
  const double m = load.rows;
  const double h = vision_.hidden_size;
  const std::uint32_t tp = sharing_.tp_size();
  const auto heads = static_cast<std::uint32_t>(ceil_div(vision_.num_heads, tp));
  const std::uint64_t q = std::uint64_t{heads} * vision_.head_dim();
  const std::uint64_t width = ceil_div(vision_.intermediate_size, tp);
  const double layers = vision_.num_layers;
  const auto elements = [&](double count, double times) {
    sum.add(costs_.elementwise(count * kElement), times);
  };
  const auto all_reduce = [&](double count, double times) {
    if (tp == 1) return;
    sum.add(costs_.all_reduce(count * kElement, tp), times);
    sum.communicated += costs_.all_reduce_sent(count * kElement, tp) * times;
  };
  if (vision_.rule == ImageRule::kSmartResize && vision_.position_embeddings > 0) {  // Qwen3-VL
    sum.add(costs_.gemm(m, vision_.hidden_size, patch_elements(vision_)));
    sum.issued += kIssuedImage * load.images;
  } else {
    KernelCost convolution;
    convolution.flops = 2 * m * h * static_cast<double>(patch_elements(vision_));
    convolution.seconds = convolution.flops / convolution_flops_;
    convolution.launches = 1;
    sum.add(convolution);
  }
  if (vision_.rule == ImageRule::kClosestRatio) sum.device += kPositionsResized;
  if (vision_.position_embeddings > 0) elements(3 * m * h, 1);
  if (vision_.position_embeddings > 0 && vision_.sharded_positions) all_reduce(m * h, 1);

  sum.issued += (vision_.rotary ? kIssuedRotary : kIssued) * layers;
  sum.drained = layers;
  elements((vision_.gated_mlp ? 2 : kLayerNorm) * m * h, 2 * layers);  // norms: RMS beside a gated MLP
  sum.add(costs_.gemm(m, 3 * q, vision_.hidden_size), layers);
  const double qk = 2.0 * m * static_cast<double>(q);
  elements(3 * qk, layers);  // queries, keys and values, each copied
  if (vision_.rotary) elements(kRotation / 2 * qk, layers);
  if (vision_.qk_norm) {
    elements(2 * qk, layers);
    if (tp > 1) {
      sum.add(costs_.all_gather(qk / 2 * kElement, tp), 2 * layers);
      sum.communicated += qk / 2 * kElement * (tp - 1) * 2 * layers;
    }
  }
  const double windowed = load.windows.empty() ? 0 : layers - vision_.full_attention_layers;
  const auto attend = [&](const std::vector<attention::SequenceGroup>& sequences, double times) {
    sum.add(attention_.layer(sequences, heads, vision_.head_dim(), vision_.flat), times);
    sum.host += attention_.host_seconds(sequences, vision_.flat) * times;
  };
  attend(load.sequences, layers - windowed);
  if (windowed > 0) attend(load.windows, windowed);
  sum.add(costs_.gemm(m, vision_.hidden_size, q), layers);
  all_reduce(m * h, layers);
  const double wide = m * static_cast<double>(width);
  sum.add(costs_.gemm(m, (vision_.gated_mlp ? 2 : 1) * width, vision_.hidden_size), layers);
  const bool unfused = vision_.rule == ImageRule::kFixed;
  elements((vision_.gated_mlp ? 3 : unfused ? kUnfusedGelu : 2) * wide, layers);
  sum.add(costs_.gemm(m, vision_.hidden_size, width), layers);
  all_reduce(m * h, layers);
  elements(3 * m * h, 2 * layers);  // residuals
  if (vision_.layer_scale) elements(2 * m * h, 2 * layers);
  if (!load.windows.empty()) elements(2 * m * h, 2);  // into the order of the windows, and back
}

void VisionEncoder::projector(double tokens, Sum& sum) const {
  const std::uint32_t tp = sharing_.tp_size();
  const double merged = double(vision_.hidden_size) * vision_.merge_size * vision_.merge_size;
  const double copies = 1 + vision_.deepstack;
  sum.add(costs_.elementwise(2 * tokens * merged * kElement), copies);  // norm, shuffle or pooling
  const std::vector<VisionWeight> weights = projector_weights(vision_, tp);
  for (const VisionWeight& weight : weights) {
    const double times = static_cast<double>(weight.copies);
    sum.add(costs_.gemm(tokens, weight.n, weight.k), times);
    if (&weight != &weights.back())
      sum.add(costs_.elementwise(2 * tokens * double(weight.n) * kElement), times);
  }
  if (vision_.projector_sharded && tp > 1) {
    const std::uint64_t out =
        vision_.second_projector > 0 ? vision_.second_projector : vision_.out_hidden_size;
    const double bytes = tokens * static_cast<double>(out) * kElement;
    sum.add(costs_.all_reduce(bytes, tp), copies);
    sum.communicated += costs_.all_reduce_sent(bytes, tp) * copies;
  }
}

EncoderCost VisionEncoder::run(const Load& load, double projected) const {
  Sum sum;
  if (load.rows > 0) transformer(load, sum);
  if (projected > 0) projector(projected, sum);
  IssuedTime pass =
      clock_.eager(sum.device, sum.launches, (sum.launches + sum.issued) * clock_.launch_seconds());
  pass.device += sum.drained * kDrained * clock_.launch_seconds();
  return {pass.seconds() + sum.host, sum.flops, sum.bytes, sum.communicated};
}

EncoderCost VisionEncoder::encode(std::span<const ImageSize> images) const {
  EncoderCost total;
  if (images.empty()) return total;
  std::vector<ImageLayout> layouts;
  for (const ImageSize& image : images) layouts.push_back(image_layout(vision_, image.width, image.height));
  double embedded = 0;
  for (const ImageLayout& layout : layouts) embedded += layout.embedded;
  if (vision_.one_by_one) {
    for (const ImageLayout& layout : layouts) total += run(shares({layout}).front(), layout.embedded);
  } else {
    const bool shared = sharing_.data_parallel && sharing_.ranks > 1;
    // InternVL gathers what its encoder says, and every rank projects all of it.
    const bool gathers_rows = shared && vision_.rule == ImageRule::kClosestRatio;
    double most = 0;  // bytes of one rank
    EncoderCost slowest;
    for (const Load& load : shares(layouts)) {
      const EncoderCost cost = run(load, gathers_rows ? embedded : load.embedded);
      if (cost.seconds > slowest.seconds) slowest = cost;
      most =
          std::max(most, gathers_rows ? load.rows * vision_.hidden_size * kElement
                                      : load.embedded * static_cast<double>(vision_.embedding_token_bytes()));
    }
    total += slowest;
    if (shared) {
      const double bytes = most;
      total += {costs_.all_gather(bytes, sharing_.ranks).seconds + clock_.launch_seconds(), 0,
                bytes * sharing_.ranks, bytes * (sharing_.ranks - 1)};
    }
  }
  // Embeddings take their places among those of the text.
  const double bytes = 2 * embedded * static_cast<double>(vision_.embedding_token_bytes());
  total += {costs_.elementwise(bytes).seconds, 0, bytes, 0};
  return total;
}

}  // namespace tpsim::rank
