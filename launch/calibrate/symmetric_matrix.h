// A small symmetric positive definite matrix, and the linear system of it.
#pragma once

#include <cstddef>
#include <vector>

namespace tpsim::launch {

class SymmetricMatrix {
 public:
  explicit SymmetricMatrix(std::size_t size) : size_(size), cells_(size * size, 0.0) {}

  std::size_t size() const { return size_; }
  double at(std::size_t row, std::size_t column) const { return cells_[row * size_ + column]; }
  // Adds to the cell and, off the diagonal, to the one opposite.
  void add(std::size_t row, std::size_t column, double value);

  // By Cholesky's decomposition. REQUIRES: positive definite; `right` has size() numbers.
  std::vector<double> solve(std::vector<double> right) const;
  SymmetricMatrix inverse() const;

 private:
  std::size_t size_;
  std::vector<double> cells_;
};

}  // namespace tpsim::launch
