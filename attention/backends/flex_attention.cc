// torch.nn.attention.flex_attention, compiled, one request after another.
//
// Facts from SGLang's torch_flex_backend.py and PyTorch's flex_attention.py and
// _inductor/kernel/flex_attention.py, flex_decoding.py:
// - before each pass a block mask is made for every request without compiling: a dense boolean matrix of all
//   query and key positions (of the whole sequence in prefill), padded and summed up in blocks of 128 x 128
//   by a chain of small kernels; PyTorch's cache of freed memory is emptied, too;
// - each request's keys and values are gathered from the pool into dense tensors; a prefill behind a cached
//   prefix computes attention for query rows of the whole sequence and throws the prefix's away;
// - prefill: tiles of 128 query rows of one head, KV steps of 64; fully masked blocks are skipped. Decode:
// the
//   query heads of a KV head in one tile of at least 16 rows, KV cut to occupy the multiprocessors twice,
//   parts added up by a second kernel;
// - windows are not in the masks, and lengths are read from the device: the host waits for it in every layer.
// Passes are not captured.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kBlock = 128;  // of the block mask
// Launches of one request in one layer: gathers of K and V, the kernel, the sum of its parts, the copies of
// query rows (prefill) and of the output.
constexpr std::uint32_t kDecodeLaunches = 5;
constexpr std::uint32_t kExtendLaunches = 5;
// Of one request's mask, a pass: small kernels, and bytes moved for each element of the dense matrix
// (written, read and written by padding, read by the sum).
constexpr std::uint32_t kMaskLaunches = 30;
constexpr double kMaskBytes = 4;

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

double gather_bytes(std::uint32_t tokens, const LayerShape& layer) {
  return 2.0 * tokens * layer.num_kv_heads * (double(layer.head_dim) + layer.v_head_dim) * layer.kv_bytes();
}

class FlexAttentionBackend : public PlannedBackend {
 public:
  FlexAttentionBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : PlannedBackend("flex_attention", profile, page_size) {}

  KernelCost plan_cost() const override;
  HostCost host_cost() const override;
  KernelKind kernel() const override { return KernelKind::kGathered; }
  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;

 private:
  DecodePlan one_decode_;
  ExtendPlan one_extend_;
};

KernelCost FlexAttentionBackend::plan_cost() const {
  double elements = 0;
  std::uint32_t requests = 0;
  const ForwardMetadata& batch = metadata();
  for (std::size_t i = 0; i < batch.extend_lens.size(); ++i) {
    const double length = double(batch.extend_prefix_lens[i]) + batch.extend_lens[i];
    elements += length * length;
    ++requests;
  }
  for (const std::uint32_t length : batch.decode_seq_lens) {
    elements += batch.forward_mode == proto::DECODE ? length : double(length) * length;
    ++requests;
  }
  KernelCost cost;
  cost.bytes = elements * kMaskBytes;
  cost.seconds = cost.bytes / (decode_coefficients().memory * profile().memory_bandwidth());
  cost.launches = requests * kMaskLaunches;
  return cost;
}

HostCost FlexAttentionBackend::host_cost() const {
  HostCost cost = PlannedBackend::host_cost();
  cost.synchronous = true;
  return cost;
}

void FlexAttentionBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = 16;
  while (plan.rows < group) plan.rows *= 2;
  plan.blocks_per_split = layer.num_kv_heads;
  const std::uint32_t most = std::max(1U, multiprocessors() / layer.num_kv_heads * 2);
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    DecodeItem item = decode_item(i, lengths[i], layer);
    item.kv_begin = 0;
    item.split_tokens = std::min(ceil_div(ceil_div(item.kv_end, kBlock), most) * kBlock, item.kv_end);
    item.splits = ceil_div(item.kv_end, item.split_tokens);
    plan.merge = plan.merge || item.splits > 1;
    plan.items.push_back(item);
  }
}

void FlexAttentionBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  plan.rows = plan.tile_m = 128;
  plan.tile_n = 64;
  plan.head_blocks = layer.num_q_heads;
  add_extend_items(plan);
}

// Requests run one after another: each is a plan of its own.
KernelCost FlexAttentionBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
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
    one.launches = kDecodeLaunches;
    cost += one;
  }
  return cost;
}

KernelCost FlexAttentionBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                             const LayerShape& layer) {
  KernelCost cost;
  LayerShape full = layer;
  full.sliding_window = 0;
  one_extend_.tile_m = plan.tile_m;
  one_extend_.tile_n = plan.tile_n;
  one_extend_.rows = plan.rows;
  one_extend_.head_blocks = plan.head_blocks;
  for (const ExtendItem& item : plan.items) {
    const std::uint32_t length = item.prefix + item.q_len;
    one_extend_.items.assign(1, {item.request, 0, length});
    KernelCost one = model.extend(one_extend_, full);
    one += model.gather(gather_bytes(length, layer), full);
    one.launches = kExtendLaunches;
    cost += one;
  }
  return cost;
}

}  // namespace

extern const BackendDescription flex_attention = {
    .row = {.name = "flex_attention",
            .title = "FlexAttention (PyTorch)",
            .mha_place = 6,
            .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                            GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
            .supports_cuda_graph = false,
            .has_mha = true,
            .mha_page_sizes = {1},
            .mha_fp4 = Support::kYes},
    .create = create_backend<FlexAttentionBackend>,
};

}  // namespace tpsim::attention::backends
