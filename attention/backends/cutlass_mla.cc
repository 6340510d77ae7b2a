// CUTLASS MLA (Blackwell): absorbed decode over pages of 128 latents; everything else as flashinfer.
//
// Source: SGLang's cutlass_mla_backend.py (0.5.12; later releases have it no more).
#include "attention/backend_description.h"
#include "attention/flashinfer_mla.h"

namespace tpsim::attention::backends {
namespace {

class CutlassMlaBackend : public FlashInferMlaBackend {
 public:
  CutlassMlaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : FlashInferMlaBackend("cutlass_mla", profile, page_size) {}

 protected:
  void plan_decode(const LayerShape&, DecodePlan& plan) override {
    plan_cutlass_mla_decode(metadata().decode_seq_lens, plan);
  }
  MlaRule mla_rule() const override { return {.prefix = MlaPrefix::kFromThreshold}; }
};

}  // namespace

extern const BackendDescription cutlass_mla = {
    .row = {.name = "cutlass_mla",
            .title = "Cutlass MLA",
            .mla_place = 3,
            .generations = {GpuGeneration::kBlackwell},
            .has_mla = true,
            .mla_page_sizes = {128},
            .mla_fp8 = Support::kYes,
            .mla_fp4 = Support::kYes,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes},
    .create = create_backend<CutlassMlaBackend>,
};

}  // namespace tpsim::attention::backends
