// DeepSeek sparse attention (V3.2, GLM-5): an indexer scores the tokens of a sequence by keys of its own, and
// every query token attends the best top_k of them, absorbed.
//
// Source: SGLang 0.5.23, layers/attention/dsa_backend.py and dsa/dsa_indexer.py (nsa_backend.py, nsa/
// before). Decode scores index keys in their pages and replays a graph, so its indexer runs at any length; an
// extend gathers the keys of its requests first, and stores new ones only where no request has more than
// top_k tokens. Then dense attention over expanded keys and values takes the sparse kernel's place
// (set_dsa_prefill_impl), but not for a pass in captured pieces. The kernels pad the query heads to what they
// are built for, 64 or 128. Passes that verify drafts, or extend a draft model after them, run the kernels
// of decode: every draft is a row of its own, with a list of its own (init_forward_metadata; forward_extend).
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>

#include "attention/backend_description.h"
#include "attention/plan.h"
#include "attention/planned_backend.h"
#include "attention/sparse_cost.h"

namespace tpsim::attention::backends {
namespace {

class NsaBackend : public PlannedBackend {
 public:
  using PlannedBackend::PlannedBackend;

  void set_sparse_options(const SparseOptions& options) override { options_ = options; }
  KernelKind kernel() const override { return KernelKind::kSparse; }
  MlaExtend mla_extend() const override;
  const SparsePlan& sparse_plan(const LayerShape& layer) override;
  KernelCost forward_extend(const LayerShape& layer) override;
  KernelCost forward_decode(const LayerShape& layer) override;

 protected:
  void plan_decode(const LayerShape&, DecodePlan&) override { refuse(); }
  void plan_extend(const LayerShape&, ExtendPlan&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("nsa: plans lists of tokens (sparse_plan)"); }
  bool verifies() const { return verifies_drafts(metadata().forward_mode); }
  bool decodes() const { return metadata().forward_mode == proto::DECODE || verifies(); }
  bool dense() const;
  SparseKernel kernel_of(const LayerShape& layer) const;
  std::uint32_t rows_of(SparseKernel kernel, std::uint32_t heads) const;
  const SparseCost& costs(std::string_view kernel);
  KernelCost sparse(const LayerShape& layer);

  SparseOptions options_;
  SparsePlan plan_;
  std::map<std::string, SparseCost, std::less<>> costs_;  // by kernel and phase
};

// Of an eager extend: no sequence is longer than what would be selected of it
// (SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD, the model's top_k unless set).
bool NsaBackend::dense() const {
  constexpr std::uint64_t kMostTokens = 128 * 1024;  // of the batch: ForwardBatch.get_max_chunk_capacity
  const ForwardMetadata& batch = metadata();
  const bool has_kernel = generation() == GpuGeneration::kHopper || generation() == GpuGeneration::kBlackwell;
  if (!has_kernel || decodes() || batch.in_pieces) return false;
  std::uint64_t all = 0;
  const auto fits = [&](std::uint64_t length) {
    all += length;
    return length <= options_.top_k && all <= kMostTokens;
  };
  for (std::size_t i = 0; i < batch.extend_lens.size(); ++i) {
    if (!fits(std::uint64_t{batch.extend_prefix_lens[i]} + batch.extend_lens[i])) return false;
  }
  if (batch.forward_mode == proto::MIXED) {
    for (const std::uint32_t length : batch.decode_seq_lens) {
      if (!fits(length)) return false;
    }
  }
  return true;
}

SparseKernel NsaBackend::kernel_of(const LayerShape& layer) const {
  if (decodes()) return options_.kernels.decode;
  std::uint64_t kv = 0;
  std::uint64_t q = 0;
  for (const SparseItem& item : plan_.items) {
    kv += std::uint64_t{item.prefix} + item.q_len;
    q += item.q_len;
  }
  return extend_kernel(options_.kernels.prefill, generation(), layer.fp8_kv(), kv, q);
}

std::uint32_t NsaBackend::rows_of(SparseKernel kernel, std::uint32_t heads) const {
  constexpr std::uint32_t kTile = 64;
  if (kernel == SparseKernel::kFlashMlaSparse) {
    const std::uint32_t unit = generation() == GpuGeneration::kBlackwell ? 128 : kTile;
    return (heads + unit - 1) / unit * unit;
  }
  if (kernel == SparseKernel::kTriton || kernel == SparseKernel::kTritonSparseMla ||
      kernel == SparseKernel::kAiter) {
    constexpr std::uint32_t kHeads = 16;  // of a block
    return (heads + kHeads - 1) / kHeads * kHeads;
  }
  return std::max(kTile, heads);
}

const SparsePlan& NsaBackend::sparse_plan(const LayerShape& layer) {
  clear(plan_);
  add_query_items(plan_.items);
  const SparseKernel kernel = kernel_of(layer);
  plan_.top_k = layer.top_k;
  plan_.rows = rows_of(kernel, layer.num_q_heads);
  const bool told = options_.list_lengths && kernel == SparseKernel::kFlashMlaSparse;
  plan_.whole_list = walks_whole_list(kernel) && !told;
  if (decodes() && !plan_.items.empty()) {
    // Lists are cut so that a small batch still fills the device.
    constexpr std::uint32_t kMostParts = 16;
    std::uint32_t rows = 0;
    for (const SparseItem& item : plan_.items) rows += item.q_len;
    const std::uint32_t parts = std::clamp(multiprocessors() / rows, 1U, kMostParts);
    plan_.part = parts == 1 ? 0 : std::max(1U, plan_.top_k / parts);
  }
  return plan_;
}

const SparseCost& NsaBackend::costs(std::string_view kernel) {
  const std::string phase = decodes() ? ".decode" : ".extend";
  const std::string name = "attention.nsa." + std::string(kernel) + phase;
  const auto found = costs_.find(name);
  if (found != costs_.end()) return found->second;
  return costs_.emplace(name, SparseCost(profile(), name, "attention.nsa.indexer" + phase)).first->second;
}

KernelCost NsaBackend::sparse(const LayerShape& layer) {
  const SparsePlan& plan = sparse_plan(layer);
  const SparseLoad load = load_of(plan);
  const SparseKernel kernel = kernel_of(layer);
  const SparseCost& price = costs(to_string(kernel));
  LayerShape read = layer;
  if (layer.fp8_kv() && reads_raw_latents(kernel)) read.q_bytes = 1;
  double token_bytes = layer.token_bytes;
  KernelCost cost;
  const double wide = 2.0 * layer.head_dim;
  const bool prefixes = load.stored > load.queries;
  if ((kernel == SparseKernel::kFlashMlaSparse || kernel == SparseKernel::kTritonSparseMla) &&
      layer.fp8_kv()) {
    // An fp8 cache is widened into a copy of the requests' tokens, unless all are new.
    if (prefixes) cost += price.copy(load.stored * (token_bytes + wide));
    token_bytes = wide;
  }
  if (kernel == SparseKernel::kFlashMlaSparseQ8) {
    // The requests' tokens become a copy in fp8, from their pages or, where all are new, from 16 bit.
    cost += price.copy(load.stored * ((prefixes ? token_bytes : wide) + layer.head_dim));
    token_bytes = layer.head_dim;
    read.q_bytes = 1;
  }
  cost += price.attend(plan, load, read, token_bytes);
  if (layer.index_heads == 0) return cost;
  const IndexShape index{layer.index_heads, layer.index_head_dim};
  const bool all_attended = !decodes() && load.searching == 0;
  cost += all_attended ? price.index_keys_only(load, index) : price.index(load, index, !decodes());
  return cost;
}

MlaExtend NsaBackend::mla_extend() const {
  if (!dense()) return {};
  const auto prefixes = metadata().extend_prefix_lens;
  const bool cached = metadata().forward_mode == proto::MIXED ||
                      std::any_of(prefixes.begin(), prefixes.end(), [](std::uint32_t n) { return n > 0; });
  return {.method = cached ? MlaForwardMethod::kMhaOneShot : MlaForwardMethod::kMha};
}

KernelCost NsaBackend::forward_extend(const LayerShape& layer) {
  if (layer.form != AttentionForm::kMlaExpanded) return sparse(layer);
  clear(plan_);
  add_query_items(plan_.items);
  plan_.top_k = layer.top_k;
  const SparseLoad load = load_of(plan_);
  const SparseCost& price = costs("dense");
  KernelCost cost = price.dense(plan_, load, layer);
  if (layer.index_heads > 0) cost += price.index_keys_only(load, {layer.index_heads, layer.index_head_dim});
  return cost;
}

KernelCost NsaBackend::forward_decode(const LayerShape& layer) { return sparse(layer); }

}  // namespace

extern const BackendDescription nsa = {
    .row = {.name = "nsa",
            .alias = "dsa",
            .title = "NSA (DeepSeek V3.2 sparse attention)",
            .generations = {GpuGeneration::kHopper, GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120,
                            GpuGeneration::kRocm, GpuGeneration::kXpu},
            .mla_spec = Support::kYes,
            .sparse = true,
            .fp8_e5m2 = false,
            .fp8_by_default = {GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
            .draft_extend_graphs = DraftExtendGraphs::kSinceFlashAttention,
            .pool_pages = {64},
            .xpu_pool_pages = {128},
            // Page table, lengths clipped to top_k, schedule of the logits, and FlashMLA's.
            .plan_kernels = 4},
    .create = create_backend<NsaBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.sparse ? "DeepSeek sparse attention: nsa is SGLang's default" : "";
    },
};

}  // namespace tpsim::attention::backends
