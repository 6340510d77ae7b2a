// A backend that no one has: every request's KV in even parts of at most 96 tokens, tiles of 64 query rows.
// The example of attention/backends/README.md.
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kPart = 96;  // KV tokens

class EvenPartsBackend : public PlannedBackend {
 public:
  using PlannedBackend::PlannedBackend;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    plan.blocks_per_split = layer.num_kv_heads;
    plan.rows = 64;
    add_decode_items(layer, plan);
    for (DecodeItem& item : plan.items) {
      const std::uint32_t tokens = item.kv_end - item.kv_begin;
      item.splits = (tokens + kPart - 1) / kPart;
      item.split_tokens = (tokens + item.splits - 1) / item.splits;
      item.splits = (tokens + item.split_tokens - 1) / item.split_tokens;
      plan.merge = plan.merge || item.splits > 1;
    }
  }
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override {
    plan.rows = plan.tile_m = 64;
    plan.tile_n = 64;
    plan.head_blocks = layer.num_q_heads;
    add_extend_items(plan);
  }
};

}  // namespace

extern const BackendDescription even_parts = {
    .row = {.name = "even_parts",
            .title = "Even parts",
            .generations = {GpuGeneration::kHopper},
            .has_mha = true,
            .sliding_window = Support::kYes},
    .create = create_backend<EvenPartsBackend>,
};

}  // namespace tpsim::attention::backends
