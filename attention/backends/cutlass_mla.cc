// CUTLASS MLA (Blackwell): absorbed decode over pages of 128 latents, a pair of multiprocessors for a
// request, heads padded to 128, and no parts, for SGLang asks for one (num_kv_splits=1); everything else as
// flashinfer.
//
// Source: SGLang's cutlass_mla_backend.py (0.5.12; later releases have it no more).
#include "attention/backend_description.h"
#include "attention/backends/flashinfer_mla.h"

namespace tpsim::attention::backends {
namespace {

class CutlassMlaBackend : public FlashInferMlaBackend {
 public:
  using FlashInferMlaBackend::FlashInferMlaBackend;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    plan.rows = 64;
    plan.blocks_per_split = 2;
    add_decode_items(layer, plan);
  }
};

}  // namespace

extern const BackendDescription cutlass_mla = {
    .row = {.name = "cutlass_mla",
            .title = "Cutlass MLA",
            .mla_place = 3,
            .generations = {GpuGeneration::kBlackwell},
            .dropped = true,
            .has_mla = true,
            .mla_page_sizes = {128},
            .mla_fp8 = Support::kYes,
            .mla_fp4 = Support::kYes,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes,
            .plan_kernels = 2,
            .extend_kernels = "flashinfer",
            .mla_rule = {.prefix = MlaPrefix::kFromThreshold}},
    .create = create_backend<CutlassMlaBackend>,
};

}  // namespace tpsim::attention::backends
