// torch.nn.functional.scaled_dot_product_attention, one request after another.
//
// Facts from SGLang's torch_native_backend.py: each request's keys and values are gathered from the pool into
// dense tensors; a prefill behind a cached prefix computes attention for query rows of the whole sequence and
// throws the prefix's away; windows are not cut out; every request is a chain of small launches, and the pass
// is not captured. Lengths are read from the device, so that the host waits for it in every layer.
//
// On Hopper and Blackwell PyTorch's decode goes to cuDNN, which builds an execution plan for every KV length
// that the process meets for the first time (pytorch/pytorch#155958): a step takes some 29 ms longer for each
// such length, once in the life of a server ("shape_seconds" of the class attention.torch_native.decode).
// Prefill, which is causal, showed no such cost.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kStep = 128;  // KV tokens of one step of the loop of PyTorch's flash kernel

// Reading the cache through an index and writing dense copies of K and V.
double gather_bytes(std::uint32_t tokens, const LayerShape& layer) {
  return 2.0 * tokens * layer.num_kv_heads * (double(layer.head_dim) + layer.v_head_dim) * layer.kv_bytes();
}

class TorchNativeBackend : public PlannedBackend {
 public:
  TorchNativeBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : PlannedBackend("torch_native", profile, page_size) {}

  // Launches of one request in one layer: gathers, layout copies, SDPA, output copy, and one more where SDPA
  // splits the KV. Counted on an H200 (tests/calibration/measured/h200-sxm_attention.csv).
  static constexpr std::uint32_t kDecodeLaunches = 5;
  static constexpr std::uint32_t kExtendLaunches = 7;

  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;
  KernelKind kernel() const override { return KernelKind::kGathered; }
  void init_forward_metadata(const ForwardMetadata& metadata) override;
  HostCost host_cost() const override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;

 private:
  // KV splits of a request of `steps` loop steps in a layer of `heads` query heads.
  std::uint32_t splits_of(std::uint32_t heads, std::uint32_t steps);

  std::vector<bool> met_;              // by KV length: decoded before
  std::uint32_t new_shapes_ = 0;       // KV lengths of the pass planned last that were not
  std::uint32_t splits_heads_ = 0;     // heads that splits_ holds for
  std::vector<std::uint32_t> splits_;  // by steps; 0 = not worked out yet
  DecodePlan one_decode_;
  ExtendPlan one_extend_;
};

void TorchNativeBackend::init_forward_metadata(const ForwardMetadata& metadata) {
  PlannedBackend::init_forward_metadata(metadata);
  new_shapes_ = 0;
  if (metadata.forward_mode != proto::DECODE || decode_coefficients().shape_seconds == 0) return;
  for (const std::uint32_t length : metadata.decode_seq_lens) {
    if (length >= met_.size()) met_.resize(std::size_t{length} + length / 2 + 1);
    if (met_[length]) continue;
    met_[length] = true;
    ++new_shapes_;
  }
}

HostCost TorchNativeBackend::host_cost() const {
  HostCost cost = PlannedBackend::host_cost();
  cost.once_seconds = new_shapes_ * decode_coefficients().shape_seconds;
  cost.synchronous = true;
  return cost;
}

std::uint32_t TorchNativeBackend::splits_of(std::uint32_t heads, std::uint32_t steps) {
  constexpr std::uint32_t kMost = 128;  // more steps than splits change nothing
  if (heads != splits_heads_) {
    splits_.assign(kMost + 1, 0);
    splits_heads_ = heads;
  }
  std::uint32_t& splits = splits_[std::min(steps, kMost)];
  if (splits == 0) splits = flash_num_splits(heads, 2 * multiprocessors(), std::min(steps, kMost));
  return splits;
}

void TorchNativeBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  // PyTorch's flash kernel: a block per query head, KV split to fill the device twice, as in
  // FlashAttention 2.
  plan.blocks_per_split = layer.num_q_heads;
  plan.rows = 64;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    DecodeItem item = decode_item(i, lengths[i], layer);
    item.kv_begin = 0;  // windows are not cut out, only masked
    const std::uint32_t steps = (item.kv_end + kStep - 1) / kStep;
    item.splits = splits_of(layer.num_q_heads, steps);
    item.split_tokens = std::min((steps + item.splits - 1) / item.splits * kStep, item.kv_end);
    item.splits = (item.kv_end + item.split_tokens - 1) / item.split_tokens;
    plan.merge = plan.merge || item.splits > 1;
    plan.items.push_back(item);
  }
}

void TorchNativeBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  plan.rows = plan.tile_m = 128;
  plan.tile_n = 64;
  plan.head_blocks = layer.num_q_heads;
  add_extend_items(plan);
}

// Requests run one after another: each is a plan of its own.
KernelCost TorchNativeBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                           const LayerShape& layer) {
  KernelCost cost;
  LayerShape full = layer;
  full.sliding_window = 0;
  one_decode_.blocks_per_split = plan.blocks_per_split;
  one_decode_.rows = plan.rows;
  for (const DecodeItem& item : plan.items) {
    one_decode_.items.assign(1, item);
    one_decode_.merge = item.splits > 1;
    KernelCost one = model.decode(one_decode_, full);
    one += model.gather(gather_bytes(item.kv_end, layer), full);
    one.launches = kDecodeLaunches + (item.splits > 1 ? 1 : 0);
    cost += one;
  }
  return cost;
}

KernelCost TorchNativeBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                           const LayerShape& layer) {
  KernelCost cost;
  LayerShape full = layer;
  full.sliding_window = 0;
  one_extend_.tile_m = plan.tile_m;
  one_extend_.tile_n = plan.tile_n;
  one_extend_.rows = plan.rows;
  one_extend_.head_blocks = plan.head_blocks;
  for (const ExtendItem& item : plan.items) {
    // Rows for the whole sequence, the prefix included.
    one_extend_.items.assign(1, {item.request, 0, item.prefix + item.q_len});
    KernelCost one = model.extend(one_extend_, full);
    one += model.gather(gather_bytes(item.prefix + item.q_len, layer), full);
    one.launches = kExtendLaunches;
    cost += one;
  }
  return cost;
}

}  // namespace

extern const BackendDescription torch_native = {
    .row = {.name = "torch_native",
            .title = "Torch Native (SDPA)",
            .mha_place = 5,
            .generations = {GpuGeneration::kTuring, GpuGeneration::kAmpere, GpuGeneration::kAda,
                            GpuGeneration::kHopper, GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120,
                            GpuGeneration::kRocm, GpuGeneration::kXpu, GpuGeneration::kCpu},
            .supports_cuda_graph = false,
            .has_mha = true,
            .mha_page_sizes = {1},
            .mha_fp8 = Support::kYes,
            .mha_fp4 = Support::kYes,
            .multimodal = Support::kYes,
            .mm_name = "sdpa"},
    .create = create_backend<TorchNativeBackend>,
};

}  // namespace tpsim::attention::backends
