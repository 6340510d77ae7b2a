// What the towers of several families are made of: linear layers out of a checkpoint's tensors, attention over
// whole images, activations.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/vision/tower_ranks.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// y = x W^T (+ b).
struct TowerLinear {
  PackedMatrix weight;
  std::vector<float> bias;  // empty: none
  // x [rows, weight.k()], y [rows, weight.n()].
  void forward(const float* x, std::uint32_t rows, float* y, ThreadPool& pool) const;
};

// Reads the tensors of one encoder: names are PREFIX + name, PREFIX the first of some under which `probe` is
// there (checkpoints of Transformers 4 and 5 and those of the Hub differ in it).
class TowerReader {
 public:
  TowerReader(const TensorSource& source, WeightType type, std::span<const std::string_view> prefixes,
              std::string_view probe);

  // NAME.weight [outputs, inputs] (a convolution's kernel counts as flat: `shape` is then that of the tensor)
  // and, with `bias`, NAME.bias: the outputs [first, first + count).
  TowerLinear columns(const std::string& name, std::uint32_t outputs, std::uint32_t inputs, Share share,
                      bool bias, const std::vector<std::uint64_t>& shape = {}) const;
  // Outputs of several such ranges of one tensor, one above the other (q, k and v of a fused qkv).
  TowerLinear columns(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                      std::span<const Share> shares, bool bias,
                      const std::vector<std::uint64_t>& shape = {}) const;
  // All outputs, of the inputs [first, first + count). The bias is no shard's: add it once, behind the sum.
  TowerLinear rows(const std::string& name, std::uint32_t outputs, std::uint32_t inputs, Share share) const;
  // A tensor as it is, flat.
  std::vector<float> tensor(const std::string& name, const std::vector<std::uint64_t>& shape) const;
  bool has(const std::string& name) const;

 private:
  const TensorSource& source_;
  WeightType type_;
  std::string prefix_;
};

// Rows [begins[i], begins[i + 1]) attend to each other, all to all: softmax(q k^T scale) v, in fp32.
// qkv [rows, 3 x heads x dim], q of all heads first, then k, then v; out [rows, heads x dim].
void attend_segments(const float* qkv, std::uint32_t heads, std::uint32_t dim,
                     std::span<const std::uint32_t> begins, float scale, float* out, ThreadPool& pool);

// y[r] += bias, rows of bias.size().
void add_bias(float* y, std::uint32_t rows, const std::vector<float>& bias);

enum class TowerActivation : std::uint8_t { kSilu, kGelu, kGeluTanh, kQuickGelu };
// In place. kGelu: 0.5 x (1 + erf(x / sqrt(2))); kQuickGelu: x sigmoid(1.702 x).
void activate(TowerActivation activation, float* x, std::uint64_t count);
// Of a config's "hidden_act". Throws UserError, with `where`.
TowerActivation tower_activation(const std::string& name, const std::string& where);

}  // namespace tpsim::rank
