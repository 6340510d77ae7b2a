// Weights of a linear layer y = x W^T (+ bias), packed for the kernel, and the kernel.
//
// Weights are kept as bf16 or fp32, arithmetic is fp32. Every output element is one sum over k in ascending
// order, whatever the number of rows, threads or columns: a row's result does not depend on the batch it is
// in, nor a column's on how many ranks share the columns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rank/linear/thread_pool.h"

namespace tpsim::rank {

enum class WeightType : std::uint8_t { kBf16, kFp32 };

class PackedMatrix {
 public:
  PackedMatrix() = default;
  // n outputs, k inputs. `row(i, out)` writes the k weights of output i; called once per output, in order.
  PackedMatrix(WeightType type, std::uint32_t n, std::uint32_t k,
               const std::function<void(std::uint32_t output, float* out)>& row);

  std::uint32_t n() const { return n_; }
  std::uint32_t k() const { return k_; }
  std::uint64_t bytes() const { return bf16_.size() * sizeof(std::uint16_t) + fp32_.size() * sizeof(float); }

  // The k weights of one output, as fp32: a row of an embedding.
  void row(std::uint32_t output, float* out) const;

  // y[r, j] = sum over i of x[r, i] * w[j, i] (+ bias[j] where bias is not null), r < rows. Rows are
  // x_stride and y_stride apart. x and y must not overlap.
  void multiply(const float* x, std::uint32_t rows, std::uint32_t x_stride, float* y, std::uint32_t y_stride,
                const float* bias, ThreadPool& pool) const;
  // Of x [rows, k] and y [rows, n] without gaps; `bias`: empty where there is none.
  void multiply(const float* x, std::uint32_t rows, float* y, ThreadPool& pool,
                const std::vector<float>& bias = {}) const {
    multiply(x, rows, k_, y, n_, bias.empty() ? nullptr : bias.data(), pool);
  }

 private:
  // Some tiles of rows and one block of k against one panel of outputs.
  template <typename Product, typename Part>
  void multiply_part(const Product& product, const Part& part) const;

  WeightType type_ = WeightType::kFp32;
  std::uint32_t n_ = 0;
  std::uint32_t k_ = 0;
  // [panel][k][kPanel]: outputs in panels, the last one filled up with zeros. One of the two is used.
  std::vector<std::uint16_t> bf16_;
  std::vector<float> fp32_;
};

}  // namespace tpsim::rank
