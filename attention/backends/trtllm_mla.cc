// TensorRT-LLM's MLA kernels (Blackwell): absorbed decode over pages of 32 or 64 latents, and un-absorbed
// prefill over dense keys and values, always in chunks where a prefix is cached; absorbed extends are
// flashinfer's.
//
// Drafts are verified by the decode kernel, which takes several query tokens of a request.
//
// Source: SGLang's trtllm_mla_backend.py, and the planner that mla_plans.h names.
#include "attention/backend_description.h"
#include "attention/flashinfer_mla.h"

namespace tpsim::attention::backends {
namespace {

class TrtllmMlaBackend : public FlashInferMlaBackend {
 public:
  TrtllmMlaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : FlashInferMlaBackend("trtllm_mla", profile, page_size) {}

 protected:
  bool verifies_by_decoding() const override { return true; }
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    plan_trtllm_mla_decode(metadata().decode_seq_lens, layer.num_q_heads, multiprocessors(), plan);
  }
  MlaRule mla_rule() const override { return {.prefix = MlaPrefix::kExpanded}; }
};

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kBlackwell && selection.mla
             ? "Blackwell: trtllm_mla is SGLang's default for MLA models"
             : "";
}

}  // namespace

extern const BackendDescription trtllm_mla = {
    .row = {.name = "trtllm_mla",
            .title = "TRTLLM MLA (Blackwell)",
            .mla_place = 4,
            .generations = {GpuGeneration::kBlackwell},
            .has_mla = true,
            .mla_page_sizes = {32, 64},
            .mla_fp8 = Support::kYes,
            .mla_fp4 = Support::kYes,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes,
            .fp8_e5m2 = false,
            .eager_deepseek_v3_prefill = true},
    .create = create_backend<TrtllmMlaBackend>,
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
