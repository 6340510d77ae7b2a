// FlashAttention 4 (Blackwell), prefill only; its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {

extern const BackendDescription fa4 = {
    .row = {.name = "fa4",
            .title = "FlashAttention 4",
            .generations = {GpuGeneration::kBlackwell},
            .prefill_only = true,
            .has_mha = true,
            .mha_page_sizes = {128},
            .mha_fp4 = Support::kYes,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_page_sizes = {1},
            .mla_fp4 = Support::kYes},
};

}  // namespace tpsim::attention::backends
