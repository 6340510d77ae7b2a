// What the towers of several families are made of: linear layers out of a checkpoint's tensors, attention
// over whole images, gated and plain MLPs, each cut over the ranks; and the layers made of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rank/config/vision_config.h"
#include "rank/linear/packed_matrix.h"
#include "rank/linear/thread_pool.h"
#include "rank/numeric/vision/tower.h"
#include "rank/weights/tensor_source.h"

namespace tpsim::rank {

// y = x W^T (+ b).
struct TowerLinear {
  PackedMatrix weight;
  std::vector<float> bias;  // empty: none
  // x [rows, weight.k()], y [rows, weight.n()].
  void forward(const float* x, std::uint32_t rows, float* y, ThreadPool& pool) const;
};

// A norm over the whole row; without bias the root mean square, weights alone.
struct TowerNorm {
  std::vector<float> weight, bias;
  float eps = 1e-6F;
  // x and out [rows, weight.size()]; out may be x.
  void apply(const float* x, std::uint32_t rows, float* out, ThreadPool& pool) const;
};

enum class TowerActivation : std::uint8_t { kSilu, kGelu, kGeluTanh, kQuickGelu };
// Of a config's "hidden_act". Throws UserError; `where` names the config.
TowerActivation tower_activation(const std::string& name, const std::string& where = "vision_config");
// In place. kGelu is the exact one, kQuickGelu x sigmoid(1.702 x).
void activate(TowerActivation activation, float* x, std::size_t count);

// y[r] += bias, rows of bias.size().
void add_bias(float* y, std::uint32_t rows, const std::vector<float>& bias);

// Rows [begins[i], begins[i + 1]) attend to each other, all to all: softmax(q k^T scale) v, in fp32.
// qkv [rows, 3 x heads x dim]: q of all heads, then k, then v. out [rows, heads x dim].
void attend_segments(const float* qkv, std::uint32_t heads, std::uint32_t dim,
                     std::span<const std::uint32_t> begins, float scale, float* out, ThreadPool& pool);

// A layer's attention, whole or cut by heads.
struct TowerAttention {
  struct PerShard {
    TowerLinear qkv;  // q of all heads of the shard, then k, then v
    TowerLinear o;
  };
  std::vector<PerShard> shards;  // TowerRanks::shards()
  std::vector<float> o_bias;     // empty: none
  std::uint32_t dim = 0;         // of a head
  // Root mean square norms of q and of k over all heads of all ranks; empty: none.
  std::vector<float> q_norm, k_norm;
  float norm_eps = 1e-6F;

  // x [rows, inputs] normed, out [rows, outputs]. `turn`: what happens to q and k of a row before they meet,
  // called with the row and each head of both; may be empty.
  using Turn = std::function<void(std::uint32_t row, float* head)>;
  void forward(const float* x, std::uint32_t rows, std::span<const std::uint32_t> begins, const Turn& turn,
               TowerRanks& ranks, float* out) const;

 private:
  // Of the active shards' qkv.
  void norm_queries(std::vector<std::vector<float>>& qkv, std::uint32_t rows, TowerRanks& ranks) const;
};

// An MLP, whole or cut by its width: down(act(up x)), or down(act(gate x) * up x).
struct TowerMlp {
  struct PerShard {
    TowerLinear up;  // gated: gate's outputs, then up's
    TowerLinear down;
  };
  std::vector<PerShard> shards;
  std::vector<float> down_bias;  // empty: none
  bool gated = false;
  TowerActivation activation = TowerActivation::kGelu;

  void forward(const float* x, std::uint32_t rows, TowerRanks& ranks, float* out) const;
};

// Outputs [share.first, share.first + share.count) of NAME.weight [outputs, …]; those beyond `outputs` are
// zero.
struct OutputSlice {
  std::string name;
  std::uint32_t outputs = 0;
  Share share;
};

// The tensors of one encoder. Their names are a prefix and what the model's code calls them: the prefix is
// the first of `prefixes` under which `probe` is there (checkpoints of Transformers 4, of 5 and of the Hub
// differ in it).
class TowerReader {
 public:
  TowerReader(const TensorSource& source, WeightType type, const std::vector<std::string_view>& prefixes,
              std::string_view probe);

  // The slices, one above the other, and with `bias` those of NAME.bias. `inputs`: of a convolution's kernel
  // they have several dimensions.
  TowerLinear columns(std::span<const OutputSlice> slices, const std::vector<std::uint64_t>& inputs,
                      bool bias) const;
  TowerLinear whole(const std::string& name, std::uint32_t outputs, const std::vector<std::uint64_t>& inputs,
                    bool bias) const;
  // All outputs of shares of the inputs, one behind the other. No bias: it is added once, after the sum over
  // ranks.
  TowerLinear rows(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                   const std::vector<Share>& shares) const;
  // A tensor as it is, flat.
  std::vector<float> tensor(const std::string& name, const std::vector<std::uint64_t>& shape) const;
  // NAME.weight and, unless it is a root mean square, NAME.bias.
  TowerNorm norm(const std::string& name, std::uint32_t size, float eps, bool rms = false) const;
  // Cut by its width. `up`: one name, or those of gate and up. The activation is left to the caller.
  struct MlpSizes {
    std::uint32_t inputs = 0, width = 0, outputs = 0;
  };
  TowerMlp mlp(const std::vector<std::string>& up, const std::string& down, const MlpSizes& sizes, bool bias,
               const TowerRanks& ranks) const;

 private:
  const TensorSource& source_;
  WeightType type_;
  std::string prefix_;
};

// Layers x += attention(norm(x)), x += mlp(norm(x)). What the families differ in are the names of tensors,
// norms, positions, which rows attend to each other, and what becomes of the rows afterwards.

// Names of a layer's tensors after "PREFIX N."; empty: there is none.
struct VitNames {
  std::string layers = {};  // PREFIX
  std::string norm1 = {}, norm2 = {};
  std::string q = {}, k = {}, v = {}, qkv = {};  // three tensors, or one
  std::string out = {};
  std::string gate = {}, fc1 = {}, fc2 = {};
  std::string scale1 = {}, scale2 = {};  // of what is added to x
  std::string q_norm = {}, k_norm = {};  // root mean square, over all heads
};

class VitLayers {
 public:
  // Throws UserError where a tensor is missing or misshaped.
  VitLayers(const VisionConfig& vision, const VitNames& names, const TowerReader& reader,
            const TowerRanks& ranks);

  std::uint32_t size() const { return static_cast<std::uint32_t>(layers_.size()); }
  // x [begins.back(), hidden_size], in place, through layer `index`. `begins`: of attend_segments().
  void forward(std::uint32_t index, float* x, std::span<const std::uint32_t> begins,
               const TowerAttention::Turn& turn, TowerRanks& ranks) const;
  // x [tiles x length, hidden_size], in place, through all layers; each tile attends to itself alone. `turn`
  // is called with a row of its tile, and may be empty.
  void forward(float* x, std::uint32_t tiles, std::uint32_t length, const TowerAttention::Turn& turn,
               TowerRanks& ranks) const;

 private:
  struct Layer {
    TowerNorm norm1, norm2;
    TowerAttention attention;
    TowerMlp mlp;
    std::vector<float> scale1, scale2;
  };
  static Layer read_layer(const VisionConfig& vision, const VitNames& names, const TowerReader& reader,
                          const TowerRanks& ranks, const std::string& at);

  std::vector<Layer> layers_;
};

}  // namespace tpsim::rank
