// FlashMLA (Hopper): absorbed decode over pages of 64 latents; everything else as flashinfer.
//
// Source: SGLang's flashmla_backend.py, and the planner that mla_plans.h names. With an fp8 cache the queries
// are quantised, too.
#include "attention/backend_description.h"
#include "attention/flashinfer_mla.h"

namespace tpsim::attention::backends {
namespace {

class FlashMlaBackend : public FlashInferMlaBackend {
 public:
  FlashMlaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : FlashInferMlaBackend("flashmla", profile, page_size) {}

  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override {
    LayerShape quantised = layer;
    if (layer.fp8_kv()) quantised.q_bytes = 1;
    return model.decode(plan, quantised);
  }

 protected:
  bool verifies_by_decoding() const override { return true; }
  MlaRule mla_rule() const override {
    MlaRule rule = kFlashInferMlaRule;
    rule.joins = true;
    return rule;
  }
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    plan_flashmla_decode(metadata().decode_seq_lens, layer.num_q_heads, multiprocessors(), plan);
  }
};

}  // namespace

extern const BackendDescription flashmla = {
    .row = {.name = "flashmla",
            .title = "FlashMLA",
            .mla_place = 2,
            .generations = {GpuGeneration::kHopper},
            .has_mla = true,
            .mla_page_sizes = {64},
            .mla_fp8 = Support::kYes,
            .mla_fp4 = Support::kYes,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes},
    .create = create_backend<FlashMlaBackend>,
};

}  // namespace tpsim::attention::backends
