// torch.nn.functional.scaled_dot_product_attention, one request after another.
//
// Facts from SGLang's torch_native_backend.py: attention/backends/gathered_backend.h. The pass is not
// captured.
//
// On Hopper and Blackwell PyTorch's decode goes to cuDNN, which builds an execution plan for every KV length
// that the process meets for the first time (pytorch/pytorch#155958): a step takes some 29 ms longer for each
// such length, once in the life of a server ("shape_seconds" of the class attention.torch_native.decode).
// Prefill, which is causal, showed no such cost.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/backend_description.h"
#include "attention/backends/gathered_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/archive.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kStep = 128;  // KV tokens of one step of the loop of PyTorch's flash kernel

// Gathers, layout copies, SDPA, output copy, and one more where SDPA splits the KV. Counted on an H200
// (tests/calibration/measured/h200-sxm_attention.csv).
constexpr GatheredBackend::Launches kLaunches = {.decode = 5, .merge = 1, .extend = 7};

class TorchNativeBackend : public GatheredBackend {
 public:
  TorchNativeBackend(const BackendRow& row, const proto::HardwareProfile& profile, std::uint32_t page_size)
      : GatheredBackend(row, profile, page_size, kLaunches) {}

  void init_forward_metadata(const ForwardMetadata& metadata) override {
    GatheredBackend::init_forward_metadata(metadata);
    new_shapes_ = 0;
    if (metadata.forward_mode != proto::DECODE || decode_coefficients().shape_seconds == 0) return;
    for (const std::uint32_t length : metadata.decode_seq_lens) {
      if (length >= met_.size()) met_.resize(std::size_t{length} + length / 2 + 1);
      if (met_[length]) continue;
      met_[length] = true;
      ++new_shapes_;
    }
  }
  HostCost host_cost() const override {
    HostCost cost = GatheredBackend::host_cost();
    cost.once_seconds = new_shapes_ * decode_coefficients().shape_seconds;
    return cost;
  }
  void save(StateWriter& state) const override { state(met_); }
  void load(StateReader& state) override { state(met_); }

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    // PyTorch's flash kernel: a block per query head, KV split to fill the device twice, as in
    // FlashAttention 2.
    plan.blocks_per_split = layer.num_q_heads;
    plan.rows = 64;
    add_whole_items(plan);
    for (DecodeItem& item : plan.items) {
      const std::uint32_t steps = ceil_div(item.kv_end, kStep);
      const std::uint32_t most = most_splits_(layer.num_q_heads, steps);
      item.split_tokens = std::min(ceil_div(steps, most) * kStep, item.kv_end);
      item.splits = ceil_div(item.kv_end, item.split_tokens);
      plan.merge = plan.merge || item.splits > 1;
    }
  }

 private:
  std::vector<bool> met_;         // by KV length: decoded before
  std::uint32_t new_shapes_ = 0;  // KV lengths of the pass planned last that were not
  FlashSplits most_splits_{2 * multiprocessors()};
};

}  // namespace

extern const BackendDescription torch_native = {
    .row = {.name = "torch_native",
            .title = "Torch Native (SDPA)",
            .mha_place = 5,
            .generations = kCudaGenerations |
                           GpuGenerations{GpuGeneration::kRocm, GpuGeneration::kXpu, GpuGeneration::kCpu},
            .supports_cuda_graph = false,
            .has_mha = true,
            .mha_page_sizes = {1},
            .mha_fp8 = Support::kYes,
            .mha_fp4 = Support::kYes,
            .multimodal = Support::kYes,
            .fresh_decode = FreshDecode::kEngines,
            .plan_price_assumed = false,
            .decode_constants = {"decode.launch_seconds", "decode.shape_seconds"}},
    .create = create_backend<TorchNativeBackend>,
};

}  // namespace tpsim::attention::backends
