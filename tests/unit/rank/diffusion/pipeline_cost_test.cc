#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>

#include "proto/base/error.h"
#include "rank/config/pipeline_names.h"
#include "rank/cost/hardware.h"
#include "rank/diffusion/calibration.h"
#include "tests/unit/rank/diffusion/diffusion_helpers.h"

namespace tpsim::rank {
namespace {

double flops(const StageCost& stage) {
  double sum = 0;
  for (const OperatorShare& o : stage.operators) sum += o.flops;
  return sum;
}

// SGLang 0.5.12's own transformers on H200s, ms (../shared/data/diffusion/sglang_dit.json).
struct Measured {
  bool wan;
  std::uint32_t size;  // frames of 832 x 480, or the side of an image
  const char *mode, *backend;
  double ms;
};
constexpr Measured kMeasured[] = {{true, 17, "", "fa", 55.5},
                                  {true, 81, "", "fa", 435.7},
                                  {false, 1024, "", "fa", 127.3},
                                  {true, 17, "u", "fa", 65.5},
                                  {true, 81, "u", "fa", 216.7},
                                  {false, 1024, "u", "fa", 105.1},
                                  {true, 17, "r", "fa", 76.7},
                                  {true, 81, "r", "fa", 248.5},
                                  {false, 1024, "r", "fa", 146.2},
                                  {true, 17, "", "torch_sdpa", 69.8},
                                  {true, 81, "", "torch_sdpa", 673.3},
                                  {false, 1024, "", "torch_sdpa", 144.2},
                                  {true, 17, "u", "torch_sdpa", 72.1},
                                  {true, 81, "u", "torch_sdpa", 369.4},
                                  {false, 1024, "u", "torch_sdpa", 114.1},
                                  {true, 17, "", "sage_attn", 69.3},
                                  {true, 81, "", "sage_attn", 598.6},
                                  {false, 1024, "", "sage_attn", 143.8}};

TEST(DiffusionCost, PassesTakeWhatWasMeasured) {
  const proto::HardwareProfile hardware = load_hardware("h200-sxm");
  double one = 0, two = 0, ones = 0, twos = 0;
  for (const Measured& row : kMeasured) {
    const PipelineConfig config = load_pipeline(row.wan ? "wan2.1-t2v-1.3b" : "flux.1-dev");
    PipelinePlan plan = plan_of(config, row.backend);
    const std::string mode = row.mode;
    plan.num_gpus = mode.empty() ? 1 : 2;
    plan.ulysses = mode == "u" ? 2 : 1;
    plan.ring = mode == "r" ? 2 : 1;
    const GenerationRequest request =
        row.wan ? request_of(832, 480, row.size) : request_of(row.size, row.size);
    const double ms = PipelineCost(config, plan, hardware).forward("transformer", request, 10).seconds * 1e3;
    const double error = std::abs(ms / row.ms - 1);
    EXPECT_LT(error, 0.16) << row.wan << " " << row.size << " " << mode << " " << row.backend << ": " << ms;
    (mode.empty() ? one : two) += error;
    (mode.empty() ? ones : twos) += 1;
  }
  EXPECT_LT(one / ones, 0.05);
  EXPECT_LT(two / twos, 0.08);
}

// Diffusers' VAEs, s (../shared/data/diffusion/vae_encoder.json;
// tests/calibration/measured/h100-sxm_diffusion.json).
TEST(DiffusionCost, DecodingTakesWhatWasMeasured) {
  struct Row {
    const char *pipeline, *hardware;
    std::uint32_t width, height, frames;
    bool fp32;
    double ms, gb;
  };
  double sum = 0, rows = 0;
  for (const Row& row : {Row{"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 1, false, 26.7, 2.04},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 17, false, 349.3, 4.89},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 1, true, 42.2, 3.91},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 17, true, 588.3, 9.62},
                         {"wan2.1-t2v-1.3b", "h100-sxm", 832, 480, 81, false, 2068, 5.0},
                         {"flux.1-dev", "h100-sxm", 1024, 1024, 1, false, 91.5, 2.76},
                         {"flux.1-dev", "h100-sxm", 512, 512, 1, false, 23.7, 0.84},
                         {"qwen-image", "h100-sxm", 1024, 1024, 1, false, 76.5, 4.73},
                         {"hunyuanvideo", "h100-sxm", 832, 480, 17, false, 892.7, 0}}) {
    const PipelineConfig config = load_pipeline(row.pipeline);
    PipelinePlan plan = plan_of(config, "fa");
    plan.vae_fp32 = row.fp32;
    plan.diffusers_vae = true;
    for (const PipelineComponent& c : config.components) {
      if (c.kind != ComponentKind::kVae) plan.residency[c.name] = Residency::kComponentOffload;
    }
    const StageCost stage = PipelineCost(config, plan, load_hardware(row.hardware))
                                .decode(request_of(row.width, row.height, row.frames));
    const double error = std::abs(stage.seconds * 1e3 / row.ms - 1);
    EXPECT_LT(error, 0.11) << row.pipeline << " " << row.hardware << ": " << stage.seconds;
    if (row.gb > 0) {
      EXPECT_NEAR(stage.peak_bytes / 1e9, row.gb + 0.9, 0.2 * row.gb) << row.pipeline;
    }
    sum += error;
    ++rows;
  }
  EXPECT_LT(sum / rows, 0.06);
}

// SGLang 0.5.23's own (tests/calibration/measured/h100-sxm_vae.json): one GPU and two, decoding.
TEST(DiffusionCost, SglangsVaesTakeWhatWasMeasured) {
  struct Row {
    const char *pipeline, *hardware;
    std::uint32_t width, height, frames, gpus;
    bool fp32;
    double ms, gib;
  };
  double sum = 0, rows = 0;
  for (const Row& row : {Row{"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 21, 1, false, 306.1, 6.525},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 1, 1, false, 23.9, 4.232},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 960, 960, 25, 1, false, 853.2, 15.071},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 1280, 720, 21, 1, false, 717.4, 15.05},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 81, 1, false, 1190.5, 6.662},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 21, 1, true, 520.6, 7.608},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 1280, 720, 21, 1, true, 1233.2, 17.543},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 21, 2, false, 221.5, 3.283},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 960, 960, 25, 2, false, 478.7, 7.591},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 81, 2, false, 792.5, 3.423},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 832, 480, 21, 2, true, 310.8, 3.555},
                         {"wan2.1-t2v-1.3b", "h200-sxm", 1280, 720, 21, 2, true, 662.3, 8.201},
                         {"wan2.2-ti2v-5b", "h200-sxm", 1280, 704, 21, 1, true, 1258.6, 14.783},
                         {"flux.1-dev", "h100-sxm", 1024, 1024, 1, 1, false, 90.5, 2.38},
                         {"flux.1-dev", "h200-sxm", 1024, 1024, 1, 1, false, 85.7, 2.377},
                         {"qwen-image", "h200-sxm", 1024, 1024, 1, 1, false, 53.3, 3.378}}) {
    const PipelineConfig config = load_pipeline(row.pipeline);
    PipelinePlan plan = plan_of(config, "fa");
    plan.num_gpus = plan.cfg = row.gpus;
    plan.vae_fp32 = row.fp32;
    plan.exact = true;  // called by themselves, their fused kernels were off
    for (const PipelineComponent& c : config.components)
      plan.residency[c.name] = Residency::kComponentOffload;
    if (config.video && row.gpus == 1)
      plan.residency["text_encoder"] = Residency::kLayerwiseOffload;  // nothing of it stays
    const PipelineCost cost(config, plan, load_hardware(row.hardware));
    const GenerationRequest request = request_of(row.width, row.height, row.frames);
    const StageCost stage = cost.decode(request);
    double offload = 0;
    for (const OperatorShare& o : stage.operators) {
      if (o.name == "offload") offload += o.seconds;
    }
    const double ms = (stage.seconds - offload) * 1e3;
    const double error = std::abs(ms / row.ms - 1);
    EXPECT_LT(error, 0.2) << row.pipeline << " " << row.width << " " << row.gpus << ": " << ms;
    const auto vae = std::ranges::find(config.components, "vae", &PipelineComponent::name);
    const double held = diffusion::kContextBytes + 1.0 * vae->loaded * vae->bytes_per_parameter;
    EXPECT_NEAR((stage.peak_bytes - held) / (1 << 30) / row.gib, 1, 0.04)
        << row.pipeline << " " << row.width << " " << row.gpus;
    sum += error;
    ++rows;
  }
  EXPECT_LT(sum / rows, 0.1);
}

// UMT5-xxl of 512 tokens in fp32 (h100-sxm_diffusion.json) and 16 bit (vae_encoder.json), s.
TEST(DiffusionCost, TextEncodersTakeWhatWasMeasured) {
  PipelineConfig config = load_pipeline("wan2.1-t2v-1.3b");
  const PipelinePlan plan = plan_of(config, "fa");
  const GenerationRequest request = request_of(832, 480, 81);
  EXPECT_NEAR(PipelineCost(config, plan, load_hardware("h100-sxm")).encode_text(request).seconds, 0.1233,
              0.015);
  std::ranges::find(config.components, "text_encoder", &PipelineComponent::name)->bytes_per_parameter = 2;
  EXPECT_NEAR(PipelineCost(config, plan, load_hardware("h200-sxm")).encode_text(request).seconds, 0.025,
              0.0025);
}

TEST(DiffusionCost, MoreWorkTakesLonger) {
  const proto::HardwareProfile hardware = load_hardware("h100-sxm");
  for (const std::string& name : pipeline_catalogue()) {
    const PipelineConfig config = load_pipeline(name);
    const PipelineCost cost(config, plan_of(config, "fa"), hardware);
    const std::uint32_t frames = config.video ? 33 : 1;
    const auto generated = [&](GenerationRequest request) {
      if (config.needs_image) request.images.push_back({request.width, request.height});
      return cost.generate(request);
    };
    const GenerationCost small = generated(request_of(512, 512, frames, 20));
    EXPECT_GT(small.seconds, 0) << name;
    double stages = 0, peak = 0;
    for (const StageCost& stage : small.stages) {
      stages += stage.seconds;
      peak = std::max(peak, stage.peak_bytes);
      double operators = 0;
      for (const OperatorShare& o : stage.operators) operators += o.seconds;
      EXPECT_LE(operators, stage.seconds * 1.0001) << name << " " << stage.name;
    }
    EXPECT_DOUBLE_EQ(stages, small.seconds) << name;
    EXPECT_DOUBLE_EQ(peak, small.peak_bytes) << name;
    EXPECT_GE(generated(request_of(1024, 512, frames, 20)).seconds, small.seconds) << name;
    EXPECT_GT(generated(request_of(512, 512, frames, 21)).seconds, small.seconds) << name;
    EXPECT_GT(generated(request_of(512, 512, frames, 20, true)).step_seconds, 1.8 * small.step_seconds)
        << name;
    if (config.video) {
      EXPECT_GT(generated(request_of(512, 512, 65, 20)).seconds, small.seconds) << name;
    }
    GenerationRequest two = request_of(512, 512, frames, 20);
    two.outputs = 2;
    EXPECT_GE(generated(two).seconds, small.seconds) << name;
    EXPECT_GE(generated(two).peak_bytes, small.peak_bytes) << name;
  }
}

TEST(DiffusionCost, SplittingConservesWork) {
  const proto::HardwareProfile hardware = load_hardware("h200-sxm");
  const PipelineConfig config = load_pipeline("wan2.1-t2v-14b");
  const GenerationRequest request = request_of(1280, 720, 81);
  const auto forward = [&](std::uint32_t ulysses, std::uint32_t ring, std::uint32_t gather,
                           std::uint32_t tp) {
    PipelinePlan plan = plan_of(config, "fa");
    plan.num_gpus = ulysses * ring * gather * tp;
    plan.ulysses = ulysses, plan.ring = ring, plan.kv_gather = gather, plan.tp = tp;
    return PipelineCost(config, plan, hardware).forward("transformer", request, 0);
  };
  const StageCost whole = forward(1, 1, 1, 1);
  EXPECT_EQ(whole.sent_bytes, 0);
  for (const auto& [u, r, g, t] : {std::array{2U, 1U, 1U, 1U},
                                   {8U, 1U, 1U, 1U},
                                   {1U, 4U, 1U, 1U},
                                   {4U, 2U, 1U, 1U},
                                   {1U, 1U, 8U, 1U},
                                   {1U, 1U, 1U, 8U},
                                   {2U, 2U, 1U, 2U}}) {
    const StageCost part = forward(u, r, g, t);
    const double gpus = u * r * g * t;
    // Each GPU projects the text by itself under sequence parallelism; rows and tiles are padded.
    EXPECT_NEAR(flops(part) * gpus / flops(whole), 1, 0.12) << u << r << g << t;
    EXPECT_LT(part.seconds, whole.seconds);
    EXPECT_GT(part.seconds, whole.seconds / gpus);
    EXPECT_GT(part.sent_bytes, 0);
  }
}

// Two H200s, Qwen-Image's attention: a layer takes the host 0.52 to 0.60 ms where shared text takes padding,
// else 0.69.
TEST(DiffusionCost, RingsWithPaddedTextAskLessOfTheHost) {
  const PipelineConfig config = load_pipeline("qwen-image");
  PipelinePlan plan = plan_of(config, "fa");
  plan.num_gpus = plan.ring = 2;
  const PipelineCost cost(config, plan, load_hardware("h200-sxm"));
  GenerationRequest request = request_of(512, 512);
  const auto host = [&](std::uint32_t tokens) {
    request.prompt_tokens = tokens;
    return cost.forward("transformer", request, 0).host_seconds;
  };
  const double saved = (host(65) - host(64)) / 60;  // 70 tokens are shared evenly, 69 are not
  EXPECT_GT(saved, 0.09e-3);
  EXPECT_LT(saved, 0.2e-3);
}

TEST(DiffusionCost, GuidanceOnTwoGpusHalvesAStep) {
  const proto::HardwareProfile hardware = load_hardware("h100-sxm");
  const PipelineConfig config = load_pipeline("wan2.1-t2v-1.3b");
  PipelinePlan plan = plan_of(config, "fa");
  const GenerationRequest request = request_of(832, 480, 81, 50, true);
  const double one = PipelineCost(config, plan, hardware).generate(request).step_seconds;
  plan.num_gpus = plan.cfg = 2;
  const double two = PipelineCost(config, plan, hardware).generate(request).step_seconds;
  EXPECT_NEAR(two, one / 2, 0.01 * one);
}

TEST(DiffusionCost, OffloadMovesWeightsAndFreesMemory) {
  const proto::HardwareProfile hardware = load_hardware("h100-sxm");
  const PipelineConfig config = load_pipeline("wan2.2-t2v-a14b");
  const GenerationRequest request = request_of(832, 480, 17, 40, true);
  const auto generated = [&](Residency residency) {
    PipelinePlan plan = plan_of(config, "fa");
    for (const PipelineComponent& c : config.components) plan.residency[c.name] = residency;
    return PipelineCost(config, plan, hardware).generate(request);
  };
  const GenerationCost resident = generated(Residency::kResident),
                       whole = generated(Residency::kComponentOffload),
                       layers = generated(Residency::kLayerwiseOffload);
  EXPECT_GT(resident.peak_bytes, 4 * 14e9);
  EXPECT_LT(whole.peak_bytes, resident.peak_bytes);
  EXPECT_LT(layers.peak_bytes, whole.peak_bytes);
  EXPECT_GT(whole.seconds, resident.seconds);
  EXPECT_GE(layers.seconds, resident.seconds);
  const auto moved = [](const GenerationCost& cost) {
    double sum = 0;
    for (const StageCost& stage : cost.stages) sum += stage.host_link_bytes;
    return sum;
  };
  EXPECT_EQ(moved(resident), 0);
  // 80 passes of 14e9 weights in 16 bit.
  EXPECT_NEAR(moved(layers), 80 * 2 * 14.3e9, 0.02 * 80 * 2 * 14.3e9);
  EXPECT_NEAR(moved(whole), 2 * (2 * 2 * 14.3e9 + 4 * 5.68e9 + 0.5e9), 1e9);
}

TEST(DiffusionCost, SparseBackendsAndCachesAreFaster) {
  const proto::HardwareProfile hardware = load_hardware("h200-sxm");
  const PipelineConfig config = load_pipeline("wan2.1-t2v-14b");
  const GenerationRequest request = request_of(1280, 720, 81, 50, true);
  PipelinePlan plan = plan_of(config, "fa");
  const double dense = PipelineCost(config, plan, hardware).generate(request).seconds;
  plan.computed_share = 0.5;
  EXPECT_NEAR(PipelineCost(config, plan, hardware).generate(request).seconds, dense / 2, 0.05 * dense);
  PipelinePlan sparse = plan_of(config, "video_sparse_attn");
  for (auto& [name, attention] : sparse.attention)
    attention.parameters = attention::read_diffusion_parameters(*attention.self, "sparsity=0.9");
  EXPECT_LT(PipelineCost(config, sparse, hardware).generate(request).seconds, dense);
}

// Of two GPUs of a sequence, sparse layers are cut by heads where dense ones gather keys and values.
TEST(DiffusionCost, SparseLayersShareHeadsInsteadOfGathering) {
  const proto::HardwareProfile hardware = load_hardware("h200-sxm");
  const PipelineConfig config = load_pipeline("hunyuanvideo");
  const auto step = [&](const char* backend, std::uint32_t ulysses, std::uint32_t gather) {
    PipelinePlan plan = plan_of(config, backend);
    plan.num_gpus = ulysses * gather, plan.ulysses = ulysses, plan.kv_gather = gather;
    return PipelineCost(config, plan, hardware).forward("transformer", request_of(1280, 720, 61), 40).seconds;
  };
  for (const char* const backend : {"video_sparse_attn", "sla_attn", "sparse_video_gen_2_attn"}) {
    EXPECT_EQ(step(backend, 1, 2), step(backend, 2, 1)) << backend;
    EXPECT_LT(step(backend, 1, 2), 0.7 * step(backend, 1, 1)) << backend;
  }
  EXPECT_NE(step("fa", 1, 2), step("fa", 2, 1));
}

// Whole denoising loops of H100s over their dense ones, as papers have them (../shared/data/diffusion/
// published.csv), to which nothing is fitted: sliding tiles of 18 x 24 x 24 tokens in every head (F0851, over
// FlashAttention 3), SVG 2 as SGLang sets it up (F0845, F0846, the most that was seen, over FlashAttention
// 2), VSA (F0857; the whole generation, its dense one being FlashAttention 3).
TEST(DiffusionCost, PublishedVideosAreFasterAsPublished) {
  const proto::HardwareProfile hardware = load_hardware("h100-sxm");
  constexpr std::uint32_t kLayers = 60, kHeads = 24;
  const std::string file = ::testing::TempDir() + "windows.json";
  std::ofstream out(file);
  out << "{";
  for (std::uint32_t i = 0; i < kLayers * kHeads; ++i)
    out << (i == 0 ? "" : ",") << "\"0_" << i / kHeads << "_" << i % kHeads << "\":[3,3,3]";
  out << "}";
  out.close();
  const struct {
    const char *model, *dense, *backend;
    std::string config;
    std::uint32_t height, frames, steps;
    double published;
  } rows[] = {{"hunyuanvideo", "fa", "sliding_tile_attn", "skip_time_steps=0,mask_strategy_file_path=" + file,
               768, 117, 1, 945.0 / 268},
              {"hunyuanvideo", "torch_sdpa", "sparse_video_gen_2_attn", "", 720, 129, 50, 2.3},
              {"wan2.1-t2v-14b", "torch_sdpa", "sparse_video_gen_2_attn", "", 720, 81, 50, 1.89},
              {"wan2.1-t2v-14b", "fa", "video_sparse_attn", "sparsity=0.9", 720, 81, 1, 1274.0 / 576}};
  double off = 0;
  for (const auto& row : rows) {
    const PipelineConfig config = load_pipeline(row.model);
    const auto seconds = [&](const char* backend, const std::string& settings) {
      PipelinePlan plan = plan_of(config, "fa");
      for (auto& [name, attention] : plan.attention) {
        attention.self = &attention::find_diffusion_backend("--attention-backend", backend);
        attention.parameters = attention::read_diffusion_parameters(*attention.self, settings);
      }
      const GenerationRequest request = request_of(1280, row.height, row.frames, row.steps);
      return PipelineCost(config, plan, hardware).generate(request).step_seconds;
    };
    const double speedup = seconds(row.dense, "") / seconds(row.backend, row.config);
    std::cout << row.model << " " << row.backend << ": " << speedup << ", published " << row.published
              << "\n";
    off += std::abs(speedup / row.published - 1) / std::size(rows);
  }
  EXPECT_LT(off, 0.15);
}

// Products in 8 bit take between half and all of the time of 16 bit, and ask a launch more of the host.
TEST(DiffusionCost, QuantisedProductsTakeLess) {
  const PipelineConfig config = load_pipeline("flux.1-dev");
  const auto forward = [&](bool fp8) {
    PipelinePlan plan = plan_of(config, "fa");
    if (fp8) plan.weights = {.kind = WeightFormat::Kind::kFp8, .activation = ActivationFormat::kFp8};
    return PipelineCost(config, plan, load_hardware("h100-sxm"))
        .forward("transformer", request_of(1024, 1024), 0);
  };
  const StageCost whole = forward(false), eight = forward(true);
  const auto products = [](const StageCost& stage) {
    return std::ranges::find(stage.operators, "gemm", &OperatorShare::name)->seconds;
  };
  EXPECT_LT(products(eight), 0.85 * products(whole));
  EXPECT_GT(products(eight), 0.5 * products(whole));
  EXPECT_GT(eight.host_seconds, whole.host_seconds);
}

// What published checkpoints keep in 16 bit is neither faster nor smaller: of Wan 2.2's NVFP4 six of 40
// blocks and what is outside of them, of which SGLang loads 11.32 GiB a transformer, with NVFP4's scales
// twice (sgl-project/sglang pull 35739).
TEST(DiffusionCost, WhatACheckpointKeepsIsIn16Bit) {
  const PipelineConfig config = load_pipeline("wan2.2-t2v-a14b");
  const auto known =
      std::ranges::find(config.quantised, "nvidia/Wan2.2-T2V-A14B-Diffusers-NVFP4", &QuantisedCheckpoint::id);
  ASSERT_NE(known, config.quantised.end());
  EXPECT_TRUE(known->whole);
  const PipelineComponent& transformer =
      *std::ranges::find(config.components, "transformer", &PipelineComponent::name);
  const double quantised = quantised_parameters(config, transformer, known->kept);
  constexpr double kNvfp4 = 0.5 + 2.0 / 16;
  const double bytes = quantised * kNvfp4 + 2 * (static_cast<double>(transformer.loaded) - quantised);
  EXPECT_NEAR(bytes / 1024 / 1024 / 1024, 11.32, 0.01);

  PipelinePlan plan = plan_of(config, "dynamic_cudnn_sdpa");
  const proto::HardwareProfile b200 = load_hardware("b200");
  const auto products = [&] {
    const StageCost stage =
        PipelineCost(config, plan, b200).forward("transformer", request_of(832, 480, 81, 40, true), 0);
    return std::ranges::find(stage.operators, "gemm", &OperatorShare::name)->seconds;
  };
  const double whole = products();
  plan.weights = {.kind = WeightFormat::Kind::kNvfp4,
                  .block_n = 1,
                  .block_k = 16,
                  .activation = ActivationFormat::kNvfp4};
  const double all = products();
  plan.kept = known->kept;
  const double some = products();
  // 85 % of the blocks gain what all of them gained, and what is outside nothing.
  EXPECT_GT(some, all + 0.149 * (whole - all));
  EXPECT_LT(some, all + 0.2 * (whole - all));
  plan.all_quantised = false;
  EXPECT_EQ(products(), some);  // the first
  const StageCost second =
      PipelineCost(config, plan, b200).forward("transformer_2", request_of(832, 480, 81, 40, true), 0);
  EXPECT_EQ(std::ranges::find(second.operators, "gemm", &OperatorShare::name)->seconds, whole);
}

// What SGLang's CI loads of Wan 2.2's 14B on two H100s: of each of two transformers what is outside of its
// layers stays.
TEST(DiffusionCost, StreamedTransformersKeepWhatIsOutsideOfLayers) {
  const PipelineConfig config = load_pipeline("wan2.2-t2v-a14b");
  const auto transformer = std::ranges::find(config.components, "transformer", &PipelineComponent::name);
  EXPECT_NEAR(static_cast<double>(transformer->outside) * 2 / (1 << 20), 443, 20);
  PipelinePlan plan = plan_of(config, "fa");
  for (const PipelineComponent& c : config.components) plan.residency[c.name] = Residency::kLayerwiseOffload;
  const auto peak = [&](std::uint32_t prefetch) {
    plan.prefetch = prefetch;
    return PipelineCost(config, plan, load_hardware("h100-sxm"))
        .forward("transformer", request_of(832, 480, 81), 0)
        .peak_bytes;
  };
  const double layer = static_cast<double>(transformer->loaded - transformer->outside) * 2 / 40;
  EXPECT_NEAR(peak(2) - peak(1), 2 * layer, 1e6);
}

TEST(DiffusionCost, WhatCannotBeCutIsRefused) {
  const proto::HardwareProfile hardware = load_hardware("h200-sxm");
  const PipelineConfig config = load_pipeline("wan2.1-t2v-1.3b");  // 12 heads
  PipelinePlan plan = plan_of(config, "fa");
  plan.ulysses = 8;
  try {
    PipelineCost(config, plan, hardware);
    ADD_FAILURE() << "12 heads over 8";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("use --ulysses-degree 4 --ring-degree 2"), std::string::npos);
  }
  plan.ulysses = 1, plan.tp = 5;
  EXPECT_THROW(PipelineCost(config, plan, hardware), UserError);
  plan.tp = 1;
  EXPECT_THROW(PipelineCost(config, plan, hardware).generate(request_of(8, 8)), UserError);
}

}  // namespace
}  // namespace tpsim::rank
