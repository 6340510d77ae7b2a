// DeepSeek's FlashMLA (Hopper); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {

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
};

}  // namespace tpsim::attention::backends
