#include "launch/calibrate/symmetric_matrix.h"

#include <cmath>

namespace tpsim::launch {
namespace {

// The lower triangle whose product with its transpose is `matrix`.
std::vector<double> lower_triangle(const SymmetricMatrix& matrix) {
  const std::size_t n = matrix.size();
  std::vector<double> lower(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = matrix.at(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      lower[i * n + j] = i == j ? std::sqrt(sum) : sum / lower[j * n + j];
    }
  }
  return lower;
}

void solve_in_place(const std::vector<double>& lower, std::vector<double>& right) {
  const std::size_t n = right.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) right[i] -= lower[i * n + k] * right[k];
    right[i] /= lower[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) right[i] -= lower[k * n + i] * right[k];
    right[i] /= lower[i * n + i];
  }
}

}  // namespace

void SymmetricMatrix::add(std::size_t row, std::size_t column, double value) {
  cells_[row * size_ + column] += value;
  if (row != column) cells_[column * size_ + row] += value;
}

std::vector<double> SymmetricMatrix::solve(std::vector<double> right) const {
  solve_in_place(lower_triangle(*this), right);
  return right;
}

SymmetricMatrix SymmetricMatrix::inverse() const {
  const std::vector<double> lower = lower_triangle(*this);
  SymmetricMatrix out(size_);
  for (std::size_t column = 0; column < size_; ++column) {
    std::vector<double> unit(size_, 0.0);
    unit[column] = 1;
    solve_in_place(lower, unit);
    for (std::size_t row = 0; row < size_; ++row) out.cells_[row * size_ + column] = unit[row];
  }
  return out;
}

}  // namespace tpsim::launch
