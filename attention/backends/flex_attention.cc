// torch.nn.attention.flex_attention, compiled, one request after another.
//
// Facts from SGLang's torch_flex_backend.py and PyTorch's flex_attention.py and
// _inductor/kernel/flex_attention.py, flex_decoding.py:
// - before each pass a block mask is made for every request without compiling: a dense boolean matrix of all
//   query and key positions (of the whole sequence in prefill), padded and summed up in blocks of 128 x 128
//   by a chain of small kernels; PyTorch's cache of freed memory is emptied, too;
// - requests are gathered and attended one after another (attention/backends/gathered_backend.h);
// - prefill: tiles of 128 query rows of one head, KV steps of 64; fully masked blocks are skipped. Decode:
//   the query heads of a KV head in one tile of at least 16 rows, KV cut to occupy the multiprocessors twice,
//   parts added up by a second kernel;
// - windows are not in the masks.
// Passes are not captured.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/backends/gathered_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class FlexAttentionBackend : public GatheredBackend {
  static constexpr std::uint32_t kBlock = 128;  // of the block mask
  // Gathers of K and V, the kernel, the sum of its parts, the copies of query rows (prefill) and of the
  // output.
  static constexpr GatheredBackend::Launches kLaunches = {.decode = 5, .merge = 0, .extend = 5};
  // Of one request's mask, a pass: small kernels, and bytes moved for each element of the dense matrix
  // (written, read and written by padding, read by the sum).
  static constexpr std::uint32_t kMaskLaunches = 30;
  static constexpr double kMaskBytes = 4;

 public:
  FlexAttentionBackend(const BackendRow& row, const proto::HardwareProfile& profile, std::uint32_t page_size)
      : GatheredBackend(row, profile, page_size, kLaunches) {}

  KernelCost plan_cost() const override {
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

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    plan.rows = 16;
    while (plan.rows < group) plan.rows *= 2;
    plan.blocks_per_split = layer.num_kv_heads;
    const std::uint32_t most = std::max(1U, multiprocessors() / layer.num_kv_heads * 2);
    add_whole_items(plan);
    split_in_steps(most, kBlock, plan);
  }
};

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
