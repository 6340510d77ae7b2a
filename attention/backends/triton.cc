// SGLang's Triton kernels: two-stage flash decoding with a few KV splits, and an extend kernel that walks the
// cached prefix and then the new tokens.
//
// Facts from SGLang's triton_backend.py (get_num_kv_splits, --triton-attention-num-kv-splits 8) and
// triton_ops/decode_attention.py, extend_attention.py: decode blocks take up to 16 query heads of one KV
// head; the number of splits grows with the length of the sequence and falls with the size of the batch.
// MLA's decodes have as many as there are multiprocessors, rounded up to a power of two
// (_mla_decode_kv_splits_cap, from 0.5.12 on). The extend grid has as many query tiles for every request as
// the longest one needs (SGLang 0.5.14): a tile past the end of its request still walks all of the request's
// KV, which makes mixed and very ragged batches slow. Seen on an H200: 2048 new tokens together with 100
// decoding requests of 3,000 tokens took 74 ms a layer.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kMaxKvSplits = 8;
constexpr std::uint32_t kMaxKvSplitsRocm = 16;  // server_args.py, of AMD's
constexpr std::uint32_t kBlockH = 16;           // query heads of one block
constexpr std::uint32_t kMinBlockKv = 32;
// Thread blocks of a decode that one multiprocessor may hold, at most; "resident" says how many it does.
constexpr std::uint32_t kMostResident = 16;

// Of one request and split.
std::uint32_t blocks_of_heads(std::uint32_t q_heads, std::uint32_t kv_heads) {
  const std::uint32_t group = ceil_div(q_heads, kv_heads);
  return group == 1 ? q_heads : kv_heads * ceil_div(group, std::min(kBlockH, group));
}

class TritonBackend : public PlannedBackend {
 public:
  using PlannedBackend::PlannedBackend;

  KernelCost plan_cost() const override;
  bool masks_images() const override { return true; }
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
};

void TritonBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  const std::uint32_t head_blocks = blocks_of_heads(layer.num_q_heads, layer.num_kv_heads);
  plan.blocks_per_split = head_blocks;
  plan.tensor_cores = group > 1;
  plan.rows = group > 1 ? kBlockH : 1;
  std::uint32_t longest = std::max(1U, add_decode_items(layer, plan));
  std::uint32_t shortest = longest;
  for (const DecodeItem& item : plan.items) shortest = std::min(shortest, item.split_tokens);
  // Nearly equal lengths count as equal. Then two chunk sizes: one that evens out the lengths, and one that
  // fills the device, which counts for more the longer the sequences are.
  if (longest * 8 < shortest * 10) shortest = longest;
  const bool absorbed = layer.form == AttentionForm::kMlaAbsorbed;
  const std::uint32_t of_mha = profile().architecture() == "rocm" ? kMaxKvSplitsRocm : kMaxKvSplits;
  const std::uint32_t most =
      absorbed && !layer.few_kv_splits ? std::max(of_mha, std::bit_ceil(multiprocessors())) : of_mha;
  const std::uint32_t even = std::min(ceil_div(longest, std::max(1U, shortest)), most);
  const std::uint32_t even_chunk = ceil_div(longest, even);
  const double growth = std::max(std::log2(std::max(longest / 64.0, 1.0)), 1.0);
  const auto cores = static_cast<std::uint64_t>(multiprocessors() * growth);
  // MLA's kernel meets one latent with 16 heads at a time, but the rule is told the KV heads that the config
  // names, of DeepSeek's models as many as those of queries, and counts a block for each of them.
  const std::uint64_t counted =
      lengths.size() *
      (layer.config_kv_heads == 0 ? head_blocks : blocks_of_heads(layer.num_q_heads, layer.config_kv_heads));
  const auto fill =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>((cores + counted - 1) / counted, 1, most));
  const std::uint32_t fill_chunk = ceil_div(longest, fill);
  const std::uint32_t chunk = std::min(even_chunk, fill_chunk);  // the smaller one makes the more splits
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    const std::uint32_t each = ceil_div(tokens, std::max(1U, ceil_div(tokens, chunk)));
    item.split_tokens = ceil_div(each, kMinBlockKv) * kMinBlockKv;
    item.splits = std::max(1U, ceil_div(tokens, item.split_tokens));
  }
  plan.merge = true;  // the second stage always runs
  // The grid has the most splits for every request. MHA's blocks are light, and their coefficients know it:
  // each walks its tokens at a pace of its own, whatever runs beside it, and some wait for others to end.
  plan.queues = !absorbed;
  plan.resident = absorbed ? 1 : kMostResident;
  if (!absorbed) return;
  plan.launched_splits = most;
  // The grid goes through the requests before it comes to the next heads: of one request those wait for each
  // other as soon as one part of all fills the device.
  const double grid = double(lengths.size()) * head_blocks;
  plan.reads = std::clamp(grid / multiprocessors(), 1.0, double(head_blocks));
}

void TritonBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  // Block sizes by architecture and head size: extend_attention.py.
  const std::string& architecture = profile().architecture();
  if (architecture == "hopper") {
    plan.tile_m = layer.head_dim <= 256 ? 128 : 32;
    plan.tile_n = 64;
  } else if (architecture == "blackwell") {
    plan.tile_m = layer.head_dim <= 256 ? 64 : 16;
    plan.tile_n = 64;
  } else if (architecture == "ampere") {
    plan.tile_m = layer.head_dim <= 128 ? 128 : layer.head_dim <= 256 ? 64 : 32;
    plan.tile_n = layer.head_dim <= 128 ? 128 : 64;
  } else if (architecture == "blackwell_sm120" || architecture == "ada") {
    plan.tile_m = layer.head_dim <= 256 ? 64 : 32;
    plan.tile_n = layer.head_dim <= 128 ? 128 : layer.head_dim <= 256 ? 64 : 32;
  } else {
    plan.tile_m = layer.head_dim <= 128 ? 64 : 32;
    plan.tile_n = plan.tile_m;
  }
  plan.rows = plan.tile_m;
  plan.head_blocks = layer.num_q_heads;
  plan.walks_window = true;
  plan.grid_tiles = ceil_div(add_extend_items(plan), plan.tile_m);
}

// get_num_kv_splits and the kernel that builds the token indices. With a mask of images (a byte for each pair
// of a new token and one that its request has): for every request it is filled, cut to a triangle, copied,
// and its place noted (gemma3_mm.py prepare_attn_masks).
KernelCost TritonBackend::plan_cost() const {
  if (!metadata().image_mask) return PlannedBackend::plan_cost();
  const auto requests = static_cast<std::uint32_t>(metadata().extend_lens.size());
  KernelCost cost = small_kernels(4 + 4 * requests);
  double pairs = 0;
  for (std::uint32_t i = 0; i < requests; ++i) {
    const double new_tokens = metadata().extend_lens[i];
    pairs += new_tokens * (metadata().extend_prefix_lens[i] + new_tokens);
  }
  constexpr double kPasses = 5;  // a fill, a triangle and a copy: three writes, two reads
  cost.bytes = kPasses * pairs;
  cost.seconds += cost.bytes / profile().memory_bandwidth();
  return cost;
}

// Each block of a query head loads the mask of its tiles of new tokens; none is loaded for the prefix
// (extend_attention.py: skip_prefix_custom_mask). Not measured.
KernelCost TritonBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                      const LayerShape& layer) {
  KernelCost cost = model.extend(plan, layer);
  if (!metadata().image_mask) return cost;
  double pairs = 0;
  for (const ExtendItem& item : plan.items) {
    const ExtendItem own{.request = item.request, .prefix = 0, .q_len = item.q_len};
    pairs += static_cast<double>(tile_tokens(plan, own, layer.sliding_window)) * plan.tile_m;
  }
  cost += model.gather(pairs * plan.head_blocks, layer);
  return cost;
}

}  // namespace

extern const BackendDescription triton = {
    .row = {.name = "triton",
            .title = "Triton",
            .mha_place = 4,
            .mla_place = 6,
            .generations = kCudaGenerations | GpuGenerations{GpuGeneration::kRocm, GpuGeneration::kXpu},
            .has_mha = true,
            .mha_page_sizes = {1},
            .mha_fp4 = Support::kYes,
            .mha_spec = Support::kYes,
            .mha_spec_topk = Support::kYes,
            .sliding_window = Support::kYes,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_spec = Support::kYes,
            .mla_spec_topk = Support::kPageSizeOneOnly,
            .sinks = true,
            .attention_chunk = true,
            .wide_heads = true,
            .narrow_values = true,
            .linear_layers = true,
            .looks_at_first_layer = true,
            .fp8_besides = {GpuGeneration::kRocm},  // SGLang's cookbook: MiniMax M2 and GLM on MI300X
            .draft_extend_graphs = DraftExtendGraphs::kAlways,
            .fresh_decode = FreshDecode::kSplits,
            .plan_kernels = 2,
            .mla_rule = {.joins = true},
            .beside_host_kernels = BesideHostKernels::kOther},
    .create = create_backend<TritonBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      constexpr GpuGenerations kOther = {GpuGeneration::kTuring, GpuGeneration::kAmpere, GpuGeneration::kAda,
                                         GpuGeneration::kBlackwellSm120};
      if (selection.wide_heads && selection.generation != GpuGeneration::kBlackwell)
        return "heads of more than 256 elements: triton is SGLang's default but on SM100";
      if (selection.mla && kOther.contains(selection.generation))
        return "MLA model on an NVIDIA GPU other than Hopper and SM100: triton is SGLang's default";
      if (selection.block_sparse && selection.generation == GpuGeneration::kRocm)
        return "MiniMax M3 on ROCm: triton is SGLang's default";
      if (selection.sinks && kOther.contains(selection.generation))
        return "attention sinks, which flashinfer lacks: triton is SGLang's other default";
      if (selection.sinks && !selection.mla && selection.spec_topk > 1 && selection.spec_topk_given)
        return "a tree of drafts and attention sinks, which flashinfer lacks: triton is SGLang's other "
               "default";
      if (selection.attention_chunk && kOther.contains(selection.generation))
        return "Llama 4 on an NVIDIA GPU other than Hopper and SM100: triton is SGLang's default";
      if (selection.generation == GpuGeneration::kTuring)
        return "Turing: flashinfer needs Ampere or later, and triton is SGLang's other default";
      if (selection.generation == GpuGeneration::kRocm && selection.mla && !selection.aiter_heads())
        return "ROCm: SGLang leaves MLA to aiter where a GPU has 16 or 128 KV heads, else to triton";
      if (selection.generation == GpuGeneration::kRocm && !selection.mla && selection.sliding_window)
        return "ROCm: aiter has no sliding windows in SGLang's matrices, and triton is its other default";
      if (selection.generation == GpuGeneration::kXpu && selection.mla)
        return "XPU: intel_xpu has no MLA in SGLang's matrices, and triton is its other default";
      return "";
    },
};

}  // namespace tpsim::attention::backends
