// V-MoBA: the keys in chunks along time, in the frame's plane, or in both, in layers of the three kinds in
// turn; each query meets the chunks whose mean keys it is most alike.
//
// Sources: arXiv 2506.23858; SGLang 0.5.23 backends/vmoba.py (kinds of layers, parameters).
#include <algorithm>

#include "attention/diffusion/dense_kernel.h"
#include "attention/diffusion/grid.h"
#include "attention/diffusion/parameters.h"
#include "attention/diffusion/vmoba_plan.h"
#include "proto/base/error.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr std::string_view kModes[] = {"threshold", "topk"};
constexpr std::string_view kThresholdTypes[] = {"query_head", "block", "overall", "head_global"};

constexpr DiffusionParameter kParameters[] = {
    {.name = "temporal_chunk_size",
     .type = ParameterType::kInteger,
     .required = true,
     .min = 1,
     .meaning = "latent frames of a chunk in temporal layers"},
    {.name = "temporal_topk",
     .type = ParameterType::kInteger,
     .required = true,
     .min = 1,
     .meaning = "chunks that a query meets in temporal layers"},
    {.name = "spatial_chunk_size",
     .type = ParameterType::kSizes,
     .required = true,
     .min = 1,
     .sizes = 2,
     .meaning = "rows and columns of a chunk in spatial layers"},
    {.name = "spatial_topk",
     .type = ParameterType::kInteger,
     .required = true,
     .min = 1,
     .meaning = "chunks that a query meets in spatial layers"},
    {.name = "st_chunk_size",
     .type = ParameterType::kSizes,
     .required = true,
     .min = 1,
     .sizes = 3,
     .meaning = "frames, rows and columns of a chunk in spatio-temporal layers"},
    {.name = "st_topk",
     .type = ParameterType::kInteger,
     .required = true,
     .min = 1,
     .meaning = "chunks that a query meets in spatio-temporal layers"},
    {.name = "moba_select_mode",
     .type = ParameterType::kText,
     .default_value = "threshold",
     .choices = kModes,
     .meaning = "whether chunks are chosen by likeness summed up, or by their number"},
    {.name = "moba_threshold",
     .default_value = "0.25",
     .max = 1,
     .meaning = "share of the likeness that the chosen chunks hold"},
    {.name = "moba_threshold_type",
     .type = ParameterType::kText,
     .default_value = "query_head",
     .choices = kThresholdTypes,
     .meaning = "over what the likeness is summed up"},
    {.name = "first_full_step",
     .type = ParameterType::kInteger,
     .default_value = "12",
     .meaning = "first steps with full attention"},
    {.name = "first_full_layer",
     .type = ParameterType::kInteger,
     .default_value = "0",
     .meaning = "first layers with full attention"},
    {.name = "temporal_layer",
     .type = ParameterType::kInteger,
     .default_value = "1",
     .meaning = "temporal layers of a round"},
    {.name = "spatial_layer",
     .type = ParameterType::kInteger,
     .default_value = "1",
     .meaning = "spatial layers of a round"},
    {.name = "st_layer",
     .type = ParameterType::kInteger,
     .default_value = "1",
     .meaning = "spatio-temporal layers of a round"},
};

class VmobaPrice : public DiffusionPrice {
 public:
  VmobaPrice(const proto::HardwareProfile& profile, const DiffusionParameters& parameters)
      : plan_(parameters),
        by_threshold_(text_parameter(parameters, "moba_select_mode") == "threshold"),
        threshold_(real_parameter(parameters, "moba_threshold")),
        kernel_(profile, kTorchKernel),  // FlashAttention 2 over sequences of unequal lengths
        full_(profile, kFlashKernel) {}

  KernelCost layer(const DiffusionCall& call) const override {
    if (full(call)) return full_.all(call);
    const Chunks chunks = chunks_of(call);
    KernelCost cost = kernel_.part(call, call.queries, chunks.kept * call.keys / chunks.count);
    const double tokens = token_bytes(call, call.queries);
    // q, k and v are put in the order of chunks, the output back.
    cost += kernel_.traffic(8 * tokens, 8);
    // Likeness of every query to every mean in fp32: written, read by what chooses, a mask of it read and
    // written.
    cost += kernel_.traffic(16 * call.batch * call.queries * call.heads * chunks.count, 10);
    // A query is copied for each chunk that it meets; the partial outputs are written and added up in fp32.
    cost += kernel_.traffic(chunks.kept * (2 + 1 + 6) * tokens, 6);
    return cost;
  }
  double share(const DiffusionCall& call) const override {
    if (full(call)) return 1;
    const Chunks chunks = chunks_of(call);
    return chunks.kept / chunks.count;
  }
  bool measured() const override { return false; }

 private:
  struct Chunks {
    double count = 1, kept = 1;
  };

  bool full(const DiffusionCall& call) const { return plan_.full(call.step, call.layer); }

  Chunks chunks_of(const DiffusionCall& call) const {
    const GridSize grid = grid_of(call);
    const VmobaLayer layer = plan_.layer(call.layer, grid);
    Chunks chunks;
    chunks.count = grid_tokens(tiles_of(grid, layer.chunk));
    // By threshold, chunks that are all alike hold their share of the likeness each; unequal ones are fewer,
    // so this is the most.
    chunks.kept = by_threshold_ ? threshold_ * chunks.count : layer.topk;
    chunks.kept = std::clamp(chunks.kept, 1.0, chunks.count);
    return chunks;
  }

  VmobaPlan plan_;
  bool by_threshold_;
  double threshold_;
  DenseKernel kernel_, full_;
};

void check_vmoba(const DiffusionParameters& parameters) {
  if (count_parameter(parameters, "temporal_layer") + count_parameter(parameters, "spatial_layer") +
          count_parameter(parameters, "st_layer") ==
      0)
    throw_user_error(
        "{}: temporal_layer, spatial_layer and st_layer are all 0; one of them at least is to be 1",
        kDiffusionConfigFlag);
  if (text_parameter(parameters, "moba_select_mode") == "topk" &&
      text_parameter(parameters, "moba_threshold_type") == "block")
    throw_user_error(
        "{}: moba_threshold_type block is for moba_select_mode threshold; with topk it is query_head, "
        "overall or head_global",
        kDiffusionConfigFlag);
}

}  // namespace

extern const DiffusionBackend vmoba_attn;
const DiffusionBackend vmoba_attn = {
    .name = "vmoba_attn",
    .enum_name = "VMOBA_ATTN",
    .package = "vmoba",
    .module = "kernel.attn.vmoba_attn.vmoba",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                    GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
    .sparse = true,
    .parameters = kParameters,
    .check = check_vmoba,
    .create = create_price<VmobaPrice>,
    .note = "CUDA only",
};

}  // namespace tpsim::attention::diffusion
