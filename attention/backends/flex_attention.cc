// torch.nn.attention.flex_attention, one request after another; its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {

extern const BackendDescription flex_attention = {
    .row = {.name = "flex_attention",
            .title = "FlexAttention (PyTorch)",
            .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                            GpuGeneration::kBlackwell},
            .supports_cuda_graph = false,
            .has_mha = true,
            .mha_page_sizes = {1},
            .mha_fp4 = Support::kYes},
};

}  // namespace tpsim::attention::backends
