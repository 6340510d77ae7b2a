// What a pass is made of on one GPU: a list that a family, an encoder or a VAE writes, and from which both
// prices and counts of parameters follow.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpsim::rank {

// How tensor parallelism cuts a product: its outputs, its inputs (with an all-reduce behind), or not at all.
enum class Cut : std::uint8_t { kWhole, kOutputs, kInputs };

// Where a product of a transformer stands, as far as checkpoints tell what they quantise: outside of its
// blocks; what modulates them; attention and MLP of blocks of two streams (or of the only kind), the image's
// second product apart; blocks of one stream, the MLP's first product apart.
enum class Module : std::uint8_t {
  kOutside,
  kModulation,
  kAttention,
  kMlp,
  kImageMlpOut,
  kSingle,
  kSingleMlp
};
inline constexpr std::size_t kModules = 7;

// What a quantised transformer keeps in 16 bit.
struct KeptModules {
  std::uint32_t modules = 0;  // a bit for each Module
  double blocks = 0;          // of all blocks, the share that is kept whole
  static constexpr std::uint32_t bit(Module module) { return 1U << static_cast<unsigned>(module); }
  double share(Module module) const {
    if ((modules & bit(module)) != 0) return 1;
    return module == Module::kOutside ? 0 : blocks;
  }
};

struct PassOperator {
  enum class Kind : std::uint8_t { kProduct, kElementwise, kSelfAttention, kCrossAttention, kConvolution };
  Kind kind{};
  double times = 1;  // calls a pass
  // Product: C[rows, n] of inputs [rows, k]. Convolution: as such a product, of im2col.
  double rows = 0;
  std::uint64_t n = 0, k = 0;
  Cut cut = Cut::kWhole;
  Module module{};
  double channels = 0;  // convolution: inputs
  double elements = 0;  // elementwise: read and written
  // Attention. Joint self-attention: `text` of the keys are no image tokens. Heads before any cut.
  double queries = 0, keys = 0, text = 0;
  std::uint32_t heads = 0, head_dim = 0;
  bool exchanged = true;  // self-attention of the sequence that sequence parallelism shards
};

// What each of `parts` holds of `whole` tokens, the last padded.
inline double part(double whole, double parts) { return std::ceil(whole / parts); }

class OperatorList {
 public:
  // Of the products that follow.
  void within(Module module) { module_ = module; }
  // A linear layer: weight and, by default, bias. `held`: how many weights the calls share; times: each its
  // own.
  void product(double rows, std::uint64_t k, std::uint64_t n, double times, Cut cut = Cut::kWhole,
               bool bias = true) {
    if (rows > 0)
      operators_.push_back({.kind = PassOperator::Kind::kProduct,
                            .times = times,
                            .rows = rows,
                            .n = n,
                            .k = k,
                            .cut = cut,
                            .module = module_});
    matrices_[static_cast<std::size_t>(module_)] += static_cast<double>(k * n) * times;
    weights(static_cast<double>(k * n + (bias ? n : 0)) * times);
  }
  // A kernel, `times` times, that reads and writes so many elements.
  void elementwise(double elements, double times) {
    if (times > 0)
      operators_.push_back({.kind = PassOperator::Kind::kElementwise, .times = times, .elements = elements});
  }
  // Self-attention over `tokens` sharded and `text` others of one sample, all of the sequence.
  void self_attention(double tokens, double text, std::uint32_t heads, std::uint32_t head_dim, double times,
                      bool exchanged = true) {
    operators_.push_back({.kind = PassOperator::Kind::kSelfAttention,
                          .times = times,
                          .queries = tokens + text,
                          .keys = tokens + text,
                          .text = text,
                          .heads = heads,
                          .head_dim = head_dim,
                          .exchanged = exchanged});
  }
  // `queries`: of this GPU.
  void cross_attention(double queries, double keys, std::uint32_t heads, std::uint32_t head_dim,
                       double times) {
    operators_.push_back({.kind = PassOperator::Kind::kCrossAttention,
                          .times = times,
                          .queries = queries,
                          .keys = keys,
                          .heads = heads,
                          .head_dim = head_dim});
  }
  // `taps` of a kernel: 9 of 3 x 3, 27 with 3 frames.
  void convolution(double positions, std::uint64_t in, std::uint64_t taps, std::uint64_t n,
                   double times = 1) {
    const std::uint64_t k = in * taps;
    operators_.push_back({.kind = PassOperator::Kind::kConvolution,
                          .times = times,
                          .rows = positions,
                          .n = n,
                          .k = k,
                          .channels = static_cast<double>(in)});
    weights(static_cast<double>(k * n + n) * times);
  }
  void weights(double elements) { parameters_ += elements; }
  // The most elements that are held at once beside weights.
  void live(double elements) { live_ = live_ > elements ? live_ : elements; }

  const std::vector<PassOperator>& operators() const { return operators_; }
  double parameters() const { return parameters_; }
  // Of these, those that are quantised.
  double quantised(const KeptModules& kept) const {
    double elements = 0;
    for (std::size_t m = 0; m < kModules; ++m)
      elements += matrices_[m] * (1 - kept.share(static_cast<Module>(m)));
    return elements;
  }
  double live() const { return live_; }

 private:
  std::vector<PassOperator> operators_;
  double parameters_ = 0, live_ = 0;
  Module module_{};
  std::array<double, kModules> matrices_{};  // elements of products' weights
};

}  // namespace tpsim::rank
