// Norms, rotations, rounding and softmax of the dense reference.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "proto/base/number_format.h"
#include "rank/config/model_config.h"
#include "rank/numeric/dense_mlp.h"

namespace tpsim::rank::dense {

Row rms_norm(const Row& x, const std::vector<float>& weight, double eps, double offset);
// `weight`: biases behind the weights, where there are any.
Row layer_norm(Row x, const std::vector<float>& weight, double eps);
void add(Row& x, const Row& y, double times = 1);
// A row as a cache of that format gives it back.
Row stored(NumberFormat format, const Row& row);
// In E4M3 with a scale for every 128 elements, which scale_of() says of their largest.
Row scaled(const Row& row, double (*scale_of)(double largest));
// softmax(scores) v, where the first score is that of v[first]. `sink`: a score without a value, or null.
Row mixed(const Row& scores, const Rows& v, std::size_t first, const float* sink = nullptr);

// Written from the published formulas, apart from rank/config/rope.cc, so that the two check each other.
class PlainRope {
 public:
  PlainRope(const RopeConfig& config, std::size_t dim, double context, double length);

  void rotate(double* x, std::size_t position) const { rotate(x, {position, position, position}); }
  // By time, row and column, where the model tells them apart.
  void rotate(double* x, const std::array<std::size_t, 3>& positions) const;
  // Back by `position`.
  void unrotate(double* x, std::size_t position) const { rotate(x, {position, position, position}, -1); }

 private:
  void rotate(double* x, const std::array<std::size_t, 3>& positions, double direction) const;
  std::size_t axis(std::size_t i) const;
  double frequency(double f, std::size_t i, double context) const;

  const RopeConfig& config_;
  std::size_t dim_;
  std::vector<double> frequencies_;
  double gain_ = 1;
};

}  // namespace tpsim::rank::dense
