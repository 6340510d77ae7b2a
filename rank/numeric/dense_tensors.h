// The tensors of a checkpoint as the dense reference uses them: whole, in fp64, by their Hugging Face names.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

class DenseLayer {
 public:
  DenseLayer(const ModelConfig& model, const TensorSource& source, std::string prefix)
      : model_(model), source_(source), prefix_(std::move(prefix)) {}

  // A one-dimensional tensor, by its name in the layer.
  std::vector<double> vector(const std::string& name) const;
  // Any tensor, flat, by its whole name in the layer.
  std::vector<double> tensor(const std::string& name, const std::vector<std::uint64_t>& shape) const;
  // x W^T of "NAME.weight" [outputs, columns of x].
  std::vector<std::vector<double>> product(const std::string& name, const std::vector<std::vector<double>>& x,
                                           std::uint64_t outputs) const;
  // x W^T (+ b) of "NAME.weight" and "NAME.bias".
  std::vector<std::vector<double>> linear(const std::string& name, const std::vector<std::vector<double>>& x,
                                          bool bias) const;
  std::vector<std::vector<double>> mlp(const std::vector<std::vector<double>>& x) const;
  // Router, experts and shared experts.
  std::vector<std::vector<double>> experts(const std::vector<std::vector<double>>& x) const;

 private:
  // One expert's gate, up and down out of any way to store them.
  struct Expert {
    std::vector<double> gate, up, down;                 // [width, hidden], [width, hidden], [hidden, width]
    std::vector<double> gate_bias, up_bias, down_bias;  // or empty
  };
  Expert expert(const std::string& block, std::uint64_t index) const;
  std::vector<std::vector<double>> gated(const Expert& expert,
                                         const std::vector<std::vector<double>>& x) const;
  std::vector<double> activated(std::vector<double> gate, const std::vector<double>& up) const;
  std::string router_of(const std::string& block) const;
  // Experts and their weights, of one row of router logits.
  std::vector<std::pair<std::size_t, double>> chosen(const std::string& block,
                                                     std::vector<double> scores) const;
  std::vector<double> read(const std::string& name, const std::vector<std::uint64_t>& shape,
                           std::uint64_t first, std::uint64_t count) const;

  const ModelConfig& model_;
  const TensorSource& source_;
  std::string prefix_;
};

class DenseTensors {
 public:
  DenseTensors(const ModelConfig& model, const TensorSource& source);

  std::vector<double> embedding(std::uint32_t id) const;
  std::vector<double> final_norm() const;
  // Logits of each row, before any cap.
  std::vector<std::vector<double>> head(const std::vector<std::vector<double>>& x) const;
  DenseLayer layer(std::uint32_t index) const;

 private:
  const ModelConfig& model_;
  const TensorSource& source_;
  std::string prefix_;  // "model.", or another where a multimodal checkpoint says so
};

}  // namespace tpsim::rank
