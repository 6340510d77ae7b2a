// CUTLASS's MLA decode kernel (Blackwell); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {

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
};

}  // namespace tpsim::attention::backends
