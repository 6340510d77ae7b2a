// Prices of attention against measured passes and kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <string>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention::diffusion_price_test {
namespace {

DiffusionAttention attention(const std::string& gpu, const std::string& backend,
                             const std::string& config = "") {
  const DiffusionBackend& row = find_diffusion_backend("--attention-backend", backend);
  return {rank::load_hardware(gpu), row, read_diffusion_parameters(row, config)};
}

// One layer of a video transformer of 30, late in its loop of 50 steps.
DiffusionCall self_attention(std::uint32_t heads, double tokens) {
  DiffusionCall call;
  call.heads = heads;
  call.head_dim = 128;
  call.queries = call.keys = tokens;
  call.layers = 30;
  call.step = 40;
  call.steps = 50;
  return call;
}

struct Pass {
  const char* gpu;
  const char* backend;
  const char* what;
  double layers, batch;
  std::uint32_t heads;
  double tokens, text;  // text: keys of cross attention; 0: none
  double ms;
  double rope = 0;  // of ms, rope and norms of queries and keys: 8 x their bytes
};

// ../shared/data/diffusion: dit_forward.json, sglang_dit.json (an H200 SXM).
constexpr Pass kPasses[] = {
    {"h200-sxm", "torch_sdpa", "wan 81", 30, 1, 12, 32760, 512, 566.469},
    {"h200-sxm", "torch_cudnn_sdpa", "wan 81", 30, 1, 12, 32760, 512, 350.532},
    {"h200-sxm", "torch_sdpa", "wan 17", 30, 1, 12, 7800, 512, 35.468},
    {"h200-sxm", "torch_cudnn_sdpa", "wan 17", 30, 1, 12, 7800, 512, 20.403},
    {"h200-sxm", "torch_sdpa", "wan 81 x2", 30, 2, 12, 32760, 512, 1132.782},
    {"h200-sxm", "torch_cudnn_sdpa", "wan 81 x2", 30, 2, 12, 32760, 512, 690.789},
    {"h200-sxm", "torch_sdpa", "flux 1024", 57, 1, 24, 4608, 0, 45.788},
    {"h200-sxm", "torch_cudnn_sdpa", "flux 1024", 57, 1, 24, 4608, 0, 23.688},
    {"h200-sxm", "torch_sdpa", "flux 512", 57, 1, 24, 1536, 0, 7.057},
    {"h200-sxm", "torch_cudnn_sdpa", "flux 512", 57, 1, 24, 1536, 0, 3.52},
    {"h200-sxm", "torch_sdpa", "flux 2048", 57, 1, 24, 16896, 0, 585.408},
    {"h200-sxm", "torch_cudnn_sdpa", "flux 2048", 57, 1, 24, 16896, 0, 313.567},
    {"h200-sxm", "fa", "sgl wan 17", 30, 1, 12, 7800, 512, 19.028, 1.4},
    {"h200-sxm", "fa", "sgl wan 17 cfg2", 30, 1, 12, 7800, 512, 20.637, 1.4},
    {"h200-sxm", "fa", "sgl wan 81", 30, 1, 12, 32760, 512, 304.793, 5.9},
    {"h200-sxm", "fa", "sgl wan 81 cfg2", 30, 1, 12, 32760, 512, 308.216, 5.9},
    {"h200-sxm", "fa", "sgl flux", 57, 1, 24, 4608, 0, 22.178, 0.5},
    {"h200-sxm", "fa", "sgl wan 17 u2", 30, 1, 6, 7800, 512, 9.291, 0.7},
    {"h200-sxm", "fa", "sgl wan 81 u2", 30, 1, 6, 32760, 512, 126.337, 2.9},
    {"h200-sxm", "fa", "sgl flux u2", 57, 1, 12, 4608, 0, 11.612, 0.25},
    {"h200-sxm", "torch_sdpa", "sgl wan 17", 30, 1, 12, 7800, 512, 36.964, 1.4},
    {"h200-sxm", "torch_sdpa", "sgl wan 81", 30, 1, 12, 32760, 512, 552.592, 5.9},
    {"h200-sxm", "torch_sdpa", "sgl flux", 57, 1, 24, 4608, 0, 45.758, 0.5},
    {"h200-sxm", "torch_sdpa", "sgl wan 17 u2", 30, 1, 6, 7800, 512, 19.842, 0.7},
    {"h200-sxm", "torch_sdpa", "sgl wan 81 u2", 30, 1, 6, 32760, 512, 279.183, 2.9},
    {"h200-sxm", "torch_sdpa", "sgl flux u2", 57, 1, 12, 4608, 0, 24.728, 0.25},
    {"h200-sxm", "sage_attn", "sgl wan 17", 30, 1, 12, 7800, 512, 31.771, 1.4},
    {"h200-sxm", "sage_attn", "sgl wan 81", 30, 1, 12, 32760, 512, 463.794, 5.9},
    {"h200-sxm", "sage_attn", "sgl flux", 57, 1, 24, 4608, 0, 36.632, 0.5},
};

double predicted_ms(const DiffusionAttention& attention, const Pass& pass) {
  DiffusionCall call;
  call.batch = pass.batch;
  call.heads = pass.heads;
  call.head_dim = 128;
  call.queries = call.keys = pass.tokens;
  call.layers = static_cast<std::uint32_t>(pass.layers);
  double seconds = attention.layer(call).seconds;
  if (pass.text > 0) {
    call.cross = true;
    call.keys = pass.text;
    seconds += attention.layer(call).seconds;
  }
  return 1e3 * pass.layers * seconds;
}

void expect_mean(double sum, std::size_t rows, double limit, const std::string& of) {
  std::cout << of << ": " << 100 * sum / static_cast<double>(rows) << " % in the mean of " << rows << "\n";
  EXPECT_LE(sum, limit * static_cast<double>(rows)) << of;
}

TEST(DiffusionPrice, PassesOfAnH200AreWithin5PercentInTheMean) {
  double sum = 0;
  for (const Pass& pass : kPasses) {
    const double off = predicted_ms(attention(pass.gpu, pass.backend), pass) / (pass.ms - pass.rope) - 1;
    sum += std::abs(off);
    EXPECT_LE(std::abs(off), 0.12) << pass.backend << " " << pass.what << " " << off;
  }
  expect_mean(sum, std::size(kPasses), 0.05, "attention of passes");
}

struct Kernel {
  std::uint32_t heads;
  double queries, keys, flash_ms, cudnn_ms;
};
// tests/calibration/measured/h100-sxm_diffusion.json.
constexpr Kernel kKernels[] = {
    {24, 1024, 1024, 0.085, 0.0658},        {24, 4608, 4608, 0.8213, 0.4384},
    {40, 7800, 7800, 3.4635, 2.0144},       {12, 9360, 9360, 1.5614, 0.9199},
    {24, 16896, 16896, 9.3043, 5.0018},     {40, 32760, 32760, 58.3484, 37.6748},
    {5, 32760, 32760, 7.5529, 4.3232},      {40, 32760, 512, 1.0569, 0.6186},
    {12, 9360, 512, 0.1302, 0.0941},        {30, 4128, 4128, 0.8144, 0.4919},
    {24, 75600, 75600, 190.3873, 117.9756},
};

TEST(DiffusionPrice, CallsOfAnH100AreWithin6PercentInTheMean) {
  double sum = 0;
  for (const bool cudnn : {false, true}) {
    const DiffusionAttention kernel = attention("h100-sxm", cudnn ? "torch_cudnn_sdpa" : "torch_sdpa");
    EXPECT_TRUE(kernel.measured());
    for (const Kernel& row : kKernels) {
      DiffusionCall call = self_attention(row.heads, row.queries);
      call.keys = row.keys;
      call.cross = row.queries != row.keys;
      // Five calls in a row, whose first half is not slowed by the power limit; 30 us of issuing each.
      call.layers = 5;
      const double ms = (cudnn ? row.cudnn_ms : row.flash_ms) - 0.03;
      const double off = 1e3 * kernel.layer(call).seconds / ms - 1;
      sum += std::abs(off);
      EXPECT_LE(std::abs(off), 0.15) << kernel.backend().name << " " << row.heads << " " << row.queries;
    }
  }
  expect_mean(sum, 2 * std::size(kKernels), 0.06, "calls");
}

// Stable Diffusion 3.5 large on that H100: 38 layers of 38 heads of 64 over 4,096 tokens and 333 of text.
TEST(DiffusionPrice, HeadsOf64) {
  DiffusionCall call = self_attention(38, 4096 + 333);
  call.head_dim = 64;
  call.layers = 38;
  EXPECT_NEAR(38e3 * attention("h100-sxm", "torch_sdpa").layer(call).seconds, 25.7, 1.5);
  EXPECT_NEAR(38e3 * attention("h100-sxm", "torch_cudnn_sdpa").layer(call).seconds, 18.4, 1.5);
}

// An RTX 5090, which the catalogue does not have, by its datasheet.
proto::HardwareProfile rtx_5090() {
  proto::HardwareProfile profile = rank::load_hardware("rtx-pro-6000");
  profile.set_name("rtx-5090");
  profile.set_multiprocessors(170);
  profile.set_dense_flops_bf16(209.5e12);
  profile.set_memory_bandwidth(1.792e12);
  return profile;
}

struct Published {
  const char* id;  // of ../shared/data/diffusion/published.csv, to which nothing is fitted
  const char* gpu;
  const char* backend;
  const char* config;
  double speedup;  // over PyTorch's FlashAttention 2
};
constexpr const char* kMoba =
    R"({"temporal_chunk_size": 2, "temporal_topk": 2, "spatial_chunk_size": [3, 4], "spatial_topk": 20,
        "st_chunk_size": [3, 6, 4], "st_topk": 17, "moba_select_mode": "topk", "first_full_step": 0})";
constexpr Published kPublished[] = {
    {"F0807", "rtx-5090", "video_sparse_attn", "sparsity=0.89", 4.07},
    {"F0809", "rtx-5090", "video_sparse_attn", "sparsity=0.95", 7.09},
    {"F0812", "rtx-5090", "sla_attn", "sla_topk=0.05", 97.0 / 11},
    {"F0804", "rtx-5090", "vmoba_attn", kMoba, 97.0 / 47},
    {"F0686", "rtx-5090", "sage_attn", "release=1", 2.24},
    {"F0698", "rtx-5090", "sage_attn", "release=2", 3.0},
    {"F0704", "rtx-5090", "sage_attn_3", "", 4.8},
    {"F0662", "rtx-4090", "sage_attn", "release=1", 1.96},
    {"F0674", "rtx-4090", "sage_attn", "release=2", 3.01},
    {"F0776", "a100-sxm", "sage_attn", "release=2", 1.36},
    {"F0740", "h100-sxm", "sage_attn", "release=2", 2.6},
    {"F0764", "h20", "sage_attn", "release=2", 3.1},
    {"F0752", "h20", "fa", "", 1.57},
};

TEST(DiffusionPrice, PublishedSpeedUpsComeOut) {
  double sum = 0;
  for (const Published& row : kPublished) {
    const proto::HardwareProfile profile =
        row.gpu == std::string("rtx-5090") ? rtx_5090() : rank::load_hardware(row.gpu);
    const DiffusionBackend& backend = find_diffusion_backend("--attention-backend", row.backend);
    const DiffusionAttention sparse(profile, backend, read_diffusion_parameters(backend, row.config));
    const DiffusionAttention dense(profile, find_diffusion_backend("", "torch_sdpa"), {});
    // Wan 2.1 1.3B at 480p.
    DiffusionCall call = self_attention(12, 32760);
    call.grid = {21, 30, 52};
    double seconds = 0, dense_seconds = 0;
    for (call.layer = 0; call.layer < call.layers; ++call.layer) {
      seconds += sparse.layer(call).seconds;
      dense_seconds += dense.layer(call).seconds;
    }
    const double off = dense_seconds / seconds / row.speedup - 1;
    std::cout << row.id << " " << row.backend << " " << row.gpu << ": " << dense_seconds / seconds
              << ", published " << row.speedup << "\n";
    sum += std::abs(off);
    EXPECT_LE(std::abs(off), 0.3) << row.id;
  }
  expect_mean(sum, std::size(kPublished), 0.15, "published speed-ups");
}

// As papers time it, a kernel of SageAttention 1 is 2.1 x FlashAttention 2 on Ada at every length.
TEST(DiffusionPrice, KernelsAloneQuantiseNothing) {
  const proto::HardwareProfile gpu = rank::load_hardware("rtx-4090");
  for (const char* const name : {"sage_attn", "sage_attn_3"}) {
    const DiffusionBackend& backend = find_diffusion_backend("--attention-backend", name);
    const DiffusionAttention sage(gpu, backend, read_diffusion_parameters(backend, ""));
    const DiffusionAttention dense(gpu, find_diffusion_backend("", "torch_sdpa"), {});
    DiffusionCall call = self_attention(32, 1024);
    const double whole = sage.layer(call).seconds;
    call.kernel_alone = true;
    EXPECT_LT(sage.layer(call).seconds, 0.9 * whole) << name;
    EXPECT_NEAR(dense.layer(call).seconds / sage.layer(call).seconds, backend.name == "sage_attn" ? 2.1 : 5,
                1e-6);
  }
}

// backends/sdpa.py: cuDNN's kernel on SM 10, but FlashAttention's where one side is shorter than a tile, and
// on SM 10.3 for long sequences.
TEST(DiffusionPrice, DynamicTakesTheFasterKernel) {
  const auto seconds = [](const char* gpu, const char* backend, double queries, double keys) {
    DiffusionCall call = self_attention(24, queries);
    call.keys = keys;
    return attention(gpu, backend).layer(call).seconds;
  };
  EXPECT_EQ(seconds("b200", "dynamic_cudnn_sdpa", 32760, 32760),
            seconds("b200", "torch_cudnn_sdpa", 32760, 32760));
  EXPECT_LT(1.2 * seconds("b200", "dynamic_cudnn_sdpa", 32760, 32760), seconds("b200", "fa", 32760, 32760));
  EXPECT_EQ(seconds("b200", "dynamic_cudnn_sdpa", 1536, 126), seconds("b200", "fa", 1536, 126));
  EXPECT_EQ(seconds("b300", "dynamic_cudnn_sdpa", 32760, 32760), seconds("b300", "fa", 32760, 32760));
}

TEST(DiffusionPrice, IsFiniteAndGrowsWithTheSequenceEverywhere) {
  for (const std::string& gpu : rank::hardware_catalogue()) {
    const proto::HardwareProfile profile = rank::load_hardware(gpu);
    for (const DiffusionBackend* const backend : diffusion_backends()) {
      if (!backend->generations.contains(*parse_gpu_generation(profile.architecture()))) continue;
      if (backend->name == "sliding_tile_attn") continue;  // needs a file
      const std::string config = backend->name == "vmoba_attn" ? kMoba : "";
      const DiffusionAttention attention(profile, *backend, read_diffusion_parameters(*backend, config));
      double before = 0;
      for (const std::uint32_t frames : {9U, 18U, 36U}) {
        DiffusionCall call = self_attention(12, frames * 1560);
        call.grid = {frames, 30, 52};
        const KernelCost cost = attention.layer(call);
        EXPECT_GT(cost.seconds, before) << gpu << " " << backend->name;
        EXPECT_LT(cost.seconds, 100) << gpu << " " << backend->name;
        EXPECT_GT(cost.launches, 0U);
        const double share = attention.share(call);
        EXPECT_GT(share, 0) << backend->name;
        EXPECT_LE(share, 1) << backend->name;
        EXPECT_EQ(share < 1, backend->sparse && backend->name != "video_sparse_attn") << backend->name;
        before = cost.seconds;
      }
    }
  }
}

}  // namespace
}  // namespace tpsim::attention::diffusion_price_test
