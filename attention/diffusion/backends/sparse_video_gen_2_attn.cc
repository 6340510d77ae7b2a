// Sparse VideoGen 2: queries and keys in clusters by k-means, begun where the last step ended; each cluster
// of queries meets the clusters of keys that hold top_p of its attention by their centroids.
//
// Sources: arXiv 2505.18875; SGLang 0.5.23 backends/sparse_video_gen_2_attn.py,
// pipelines_core/stages/denoising.py (parameters, which steps and layers stay full).
#include <algorithm>
#include <cmath>

#include "attention/diffusion/dense_kernel.h"
#include "attention/diffusion/grid.h"

namespace tpsim::attention::diffusion {
namespace {

// Share of the keys that hold 90 % of the attention (its Table 1: densities of 0.25 to 0.31 with HunyuanVideo
// and Wan 2.1). Of the rest to 1, keys grow with the attention that is left.
constexpr double kUsualTopP = 0.9, kUsualShare = 0.3;

constexpr DiffusionParameter kParameters[] = {
    {.name = "svg2_num_q_centroids",
     .type = ParameterType::kInteger,
     .default_value = "300",
     .min = 1,
     .max = 100000,
     .meaning = "clusters of queries"},
    {.name = "svg2_num_k_centroids",
     .type = ParameterType::kInteger,
     .default_value = "1000",
     .min = 1,
     .max = 100000,
     .meaning = "clusters of keys"},
    {.name = "svg2_top_p_kmeans",
     .default_value = "0.9",
     .max = 1,
     .meaning = "share of the attention that the chosen clusters hold"},
    {.name = "svg2_min_kc_ratio",
     .default_value = "0.1",
     .max = 1,
     .meaning = "share of the clusters that are chosen at least"},
    {.name = "svg2_kmeans_iter_init",
     .type = ParameterType::kInteger,
     .default_value = "50",
     .max = 10000,
     .meaning = "rounds of the first k-means"},
    {.name = "svg2_kmeans_iter_step",
     .type = ParameterType::kInteger,
     .default_value = "2",
     .max = 10000,
     .meaning = "rounds of the later ones"},
    {.name = "svg2_zero_step_kmeans_init",
     .type = ParameterType::kFlag,
     .default_value = "false",
     .meaning = "whether full steps make clusters too"},
    {.name = "svg2_first_layers_fp",
     .default_value = "0.03",
     .meaning = "first layers with full attention, a share up to 1 or their number"},
    {.name = "svg2_first_times_fp",
     .default_value = "0.2",
     .max = 1,
     .meaning = "first steps with full attention, a share"},
};

class SemanticPrice : public DiffusionPrice {
 public:
  SemanticPrice(const proto::HardwareProfile& profile, const DiffusionParameters& parameters)
      : q_clusters_(real_parameter(parameters, "svg2_num_q_centroids")),
        k_clusters_(real_parameter(parameters, "svg2_num_k_centroids")),
        top_p_(real_parameter(parameters, "svg2_top_p_kmeans")),
        least_(real_parameter(parameters, "svg2_min_kc_ratio")),
        first_rounds_(real_parameter(parameters, "svg2_kmeans_iter_init")),
        rounds_(real_parameter(parameters, "svg2_kmeans_iter_step")),
        early_(text_parameter(parameters, "svg2_zero_step_kmeans_init") == "true"),
        full_layers_(real_parameter(parameters, "svg2_first_layers_fp")),
        full_steps_(real_parameter(parameters, "svg2_first_times_fp")),
        peak_flops_(profile.dense_flops_bf16()),
        full_(profile, kCudnnKernel),
        kernel_(profile, kFlashKernel) {}

  KernelCost layer(const DiffusionCall& call) const override {
    const double video = call.queries - call.text;
    const std::uint32_t first = early_ ? 0 : steps_full(call);
    if (full(call)) {
      KernelCost cost = full_.all(call);
      if (early_) cost += clusters(call, video, call.step == 0 ? first_rounds_ : rounds_);
      return cost;
    }
    // FlashInfer's kernel over blocks of unequal sizes.
    KernelCost cost = kernel_.part(call, call.queries, kept(call));
    cost += clusters(call, video, call.step <= first ? first_rounds_ : rounds_);
    // q, k and v by head, then in the order of clusters, the output back and by token.
    cost += kernel_.traffic(16 * token_bytes(call, call.queries), 14);
    return cost;
  }
  double share(const DiffusionCall& call) const override { return full(call) ? 1 : kept(call) / call.keys; }
  bool measured() const override { return false; }

 private:
  std::uint32_t steps_full(const DiffusionCall& call) const {
    return static_cast<std::uint32_t>(std::floor(full_steps_ * call.steps));
  }
  bool full(const DiffusionCall& call) const {
    const double layers = full_layers_ <= 1 ? std::floor(full_layers_ * call.layers) : full_layers_;
    return call.layer < layers || call.step < steps_full(call);
  }
  // Keys that a query meets; text is met by all.
  double kept(const DiffusionCall& call) const {
    const double share = top_p_ <= kUsualTopP
                             ? kUsualShare * top_p_ / kUsualTopP
                             : kUsualShare + (1 - kUsualShare) * (top_p_ - kUsualTopP) / (1 - kUsualTopP);
    return call.text + (call.keys - call.text) * std::clamp(share, least_, 1.0);
  }
  // Rounds of k-means: every token meets every centroid in a product whose distances are written and read in
  // 16 bit, then each is added to its centroid.
  KernelCost clusters(const DiffusionCall& call, double tokens, double rounds) const {
    const double distances = call.batch * call.heads * tokens * (q_clusters_ + k_clusters_);
    KernelCost cost = kernel_.traffic(rounds * 4 * token_bytes(call, tokens), 8);
    const double flops = rounds * 2 * distances * call.head_dim;
    cost.flops += flops;
    cost.seconds += flops / (0.5 * peak_flops_);
    return cost;
  }

  double q_clusters_, k_clusters_, top_p_, least_, first_rounds_, rounds_;
  bool early_;
  double full_layers_, full_steps_, peak_flops_;
  DenseKernel full_, kernel_;
};

}  // namespace

extern const DiffusionBackend sparse_video_gen_2_attn;
const DiffusionBackend sparse_video_gen_2_attn = {
    .name = "sparse_video_gen_2_attn",
    .enum_name = "SPARSE_VIDEO_GEN_2_ATTN",
    .package = "svg",
    .module = "svg",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                    GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
    .sparse = true,
    .parameters = kParameters,
    .create = create_price<SemanticPrice>,
    .note = "CUDA only",
};

}  // namespace tpsim::attention::diffusion
