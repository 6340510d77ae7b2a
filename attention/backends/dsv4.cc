// DeepSeek V4: every query token attends to the last 128 tokens and to compressed ones before them, each a
// latent that is key and value. Layers are of three kinds: 4 tokens to an entry, of which an indexer chooses
// (CSA), 128 tokens to one, all of which are attended to (HCA), and the window alone.
//
// Source: SGLang 0.5.23, layers/attention/deepseek_v4_backend.py and dsv4/indexer.py. FlashMLA's kernel for
// lists carries out prefill and decode; it pads the query heads to 64 or 128, and each query token, decoded
// or verified, is a row of its own with two lists. What compresses new tokens and writes them to their pools
// is in the fixed times of the classes "attention.dsv4.csa" and ".hca", which were fitted to whole modules
// less their matrix products.
#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "attention/backend_description.h"
#include "attention/compressed_load.h"
#include "attention/plan.h"
#include "attention/planned_backend.h"
#include "attention/sparse_cost.h"

namespace tpsim::attention::backends {
namespace {

class Dsv4Backend : public PlannedBackend {
 public:
  using PlannedBackend::PlannedBackend;

  KernelCost forward_extend(const LayerShape& layer) override { return price(layer); }
  KernelCost forward_decode(const LayerShape& layer) override { return price(layer); }

 protected:
  void plan_decode(const LayerShape&, DecodePlan&) override { refuse_plan(); }
  void plan_extend(const LayerShape&, ExtendPlan&) override { refuse_plan(); }

 private:
  [[noreturn]] static void refuse_plan() { throw std::logic_error("dsv4: is priced and not computed"); }
  KernelCost price(const LayerShape& layer);
  const SparseCost& costs(std::string_view kind, bool decodes);

  SparsePlan plan_;
  std::map<std::string, SparseCost, std::less<>> costs_;  // by kind and phase
};

const SparseCost& Dsv4Backend::costs(std::string_view kind, bool decodes) {
  const std::string phase = decodes ? ".decode" : ".extend";
  const std::string name = "attention.dsv4." + std::string(kind) + phase;
  const auto found = costs_.find(name);
  if (found != costs_.end()) return found->second;
  return costs_.emplace(name, SparseCost(profile(), name, "attention.dsv4.indexer" + phase)).first->second;
}

KernelCost Dsv4Backend::price(const LayerShape& layer) {
  const bool decodes = metadata().forward_mode == proto::DECODE || verifies_drafts(metadata().forward_mode);
  clear(plan_);
  add_query_items(plan_.items);
  if (plan_.items.empty()) return {};
  const SparseLoad load = compressed_load(plan_.items, layer);
  plan_compressed(layer, load, decodes, multiprocessors(), plan_);
  const SparseCost& price = costs(layer.index_heads > 0 ? "csa" : "hca", decodes);
  KernelCost cost = price.attend(plan_, load, layer, layer.token_bytes);
  if (layer.index_heads > 0) cost += price.index(load, {layer.index_heads, layer.index_head_dim}, false);
  return cost;
}

}  // namespace

extern const BackendDescription dsv4 = {
    .row = {.name = "dsv4",
            .alias = "compressed",
            .title = "DSV4 (DeepSeek V4 compressed attention)",
            .generations = {GpuGeneration::kHopper, GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120,
                            GpuGeneration::kRocm},
            .mha_spec = Support::kYes,
            .sliding_window = Support::kYes,
            .sinks = true,
            .wide_heads = true,
            .compressed = true,
            .fp8_e5m2 = false,
            .fp8_by_default = {GpuGeneration::kHopper, GpuGeneration::kBlackwell,
                               GpuGeneration::kBlackwellSm120, GpuGeneration::kRocm},
            .draft_extend_graphs = DraftExtendGraphs::kAlways,
            .refuses_trees = true,
            .pool_pages = {256},
            // Lengths, page tables of windows and of both kinds of entries, plans of the compressors and of
            // FlashMLA's schedule.
            .plan_kernels = 8},
    .create = create_backend<Dsv4Backend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.compressed ? "attention to compressed tokens: dsv4 is SGLang's" : "";
    },
};

}  // namespace tpsim::attention::backends
