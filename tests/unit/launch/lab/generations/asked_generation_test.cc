// Words of published figures become flags, or a reason why a row cannot be asked.
#include "launch/lab/generations/asked_generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/lab/measurements/published_generations.h"
#include "proto/base/error.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::launch {
namespace {

constexpr const char* kHead =
    "id,source,model,resolution,frames,steps,guidance,dtype,gpu,n_gpu,parallel,attn_backend,attn_params,"
    "caching,"
    "compile,timed,seconds,peak_mem_gb,speedup,baseline,solid,notes\n";

std::vector<PublishedGeneration> read(const std::string& text) {
  scheduler::TraceInput input(scheduler::decode(scheduler::open_memory(text), "page.csv"), "page.csv");
  return read_published_generations(input);
}

template <typename Call>
std::string complaint(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

PublishedGeneration video() {
  PublishedGeneration row;
  row.id = "1";
  row.source = "sglang 0.5.23 wheel: multimodal_gen/test/server/perf_baselines/h100.json";
  row.model = "Wan2.1-T2V-1.3B";
  row.resolution = "832x480";
  row.frames = "24 requested (1 s x 24 fps) -> 6 latent frames";
  row.steps = "50";
  row.guidance = "CFG, 2 forwards a step";
  row.dtype = "bf16";
  row.gpu = "H100 80GB";
  row.num_gpus = 2;
  row.parallel = "ulysses 2, CFG serial";
  row.backend = "fa (FA3, platform default)";
  row.backend_settings = "quality=exact";
  row.timed = "end to end (server request, warm)";
  return row;
}

bool has(const std::vector<std::string>& flags, const std::vector<std::string>& words) {
  return std::search(flags.begin(), flags.end(), words.begin(), words.end()) != flags.end();
}

TEST(Generations, RowsAreReadWithTheirPlace) {
  const auto rows =
      read(std::string(kHead) +
           "F1,a page,FLUX.1-dev,1024x1024,1,28,,bf16,H100,2,ulysses 2,FA3,,none,off,end to end,"
           "4.5,30,1.24-1.98,1 GPU,yes,\"by \"\"eye\"\"\"\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].file, "page.csv:2");
  EXPECT_EQ(rows[0].num_gpus, 2U);
  EXPECT_EQ(rows[0].seconds, 4.5);
  EXPECT_EQ(rows[0].peak_gib, 30);
  EXPECT_FALSE(rows[0].speedup);  // a range
  EXPECT_TRUE(rows[0].solid);
  EXPECT_EQ(rows[0].notes, "by \"eye\"");
}

TEST(Generations, MalformedRowsNameFileAndLine) {
  const std::string begin = std::string(kHead) + "F1,,m,,,,,,g,";
  for (const auto& [row, expected] : {std::pair{"1,,,,,,end to end,soon,,,,,", "soon"},
                                      {"0,,,,,,end to end,1,,,,,", "n_gpu"},
                                      {"1,,,,,,end to end,0,,,,,", "seconds"},
                                      {"1,,,,,,,1,,,,,", "timed"},
                                      {"1,,", "columns"}}) {
    const std::string said = complaint([&] { read(begin + row + "\n"); });
    EXPECT_TRUE(said.starts_with("page.csv:2: ")) << said;
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  }
  EXPECT_NE(complaint([&] { read(kHead); }), "");
  const std::string words(3000, '1');
  EXPECT_NE(complaint([&] { read(begin + "1," + words + ",,,,,end to end,1,,,,,\n"); }).find("longer"),
            std::string::npos);
}

TEST(Generations, WordsAreFlags) {
  const auto flags = generation_flags(video(), TimedPart::kEndToEnd);
  EXPECT_TRUE(has(flags, {"--model-path", "wan2.1-t2v-1.3b", "--hardware", "h100-sxm", "--num-gpus", "2"}));
  EXPECT_TRUE(has(flags, {"--ulysses-degree", "2"}));
  EXPECT_TRUE(has(flags, {"--width", "832", "--height", "480", "--num-frames", "24"}));
  EXPECT_TRUE(has(flags, {"--num-inference-steps", "50"}));
  for (const char* const unsaid :
       {"--attention-backend", "--cfg-parallel-size", "--guidance-scale", "--adjust-frames"})
    EXPECT_EQ(std::ranges::find(flags, unsaid), flags.end()) << unsaid;
  PublishedGeneration row = video();
  row.source = "xdit-project/xDiT";
  row.guidance = "DMD, 1 forward a step";
  row.parallel = "cfg 2 x ring 2";
  row.num_gpus = 4;
  row.compile = "on";
  row.backend = "video_sparse_attn";
  row.backend_settings = "sparsity 85%";
  const auto others = generation_flags(row, TimedPart::kDenoising);
  EXPECT_TRUE(has(others, {"--cfg-parallel-size", "2", "--ring-degree", "2"}));
  EXPECT_TRUE(has(others, {"--attention-backend-config", "sparsity=0.85"}));
  EXPECT_TRUE(has(others, {"--guidance-scale", "1"}));
  EXPECT_TRUE(has(others, {"--enable-torch-compile"}));
  row.dtype = "modelopt fp8";
  EXPECT_TRUE(has(generation_flags(row, TimedPart::kDenoising), {"--transformer-path", "fp8"}));
  // Of another engine: as many frames as it was asked for, and Wan's own script decodes on one GPU.
  EXPECT_TRUE(has(others, {"--adjust-frames", "false"}));
  EXPECT_EQ(std::ranges::find(others, "--vae-config.use-parallel-decode"), others.end());
  row.source = "Wan-Video/Wan2.1 README.md";
  EXPECT_TRUE(
      has(generation_flags(row, TimedPart::kDenoising), {"--vae-config.use-parallel-decode", "false"}));
}

TEST(Generations, InputImagesHaveTheOutputsShape) {
  PublishedGeneration row = video();
  row.model = "Wan2.2-TI2V-5B";
  row.resolution = "960x928 (600x600 input, area 704x1280)";
  EXPECT_TRUE(has(generation_flags(row, TimedPart::kEndToEnd), {"--image-path", "960x928"}));
}

TEST(Generations, WhatCannotBeAskedSaysWhy) {
  const auto refused = [](auto change) {
    PublishedGeneration row = video();
    change(row);
    return complaint([&] { generation_flags(row, TimedPart::kEndToEnd); });
  };
  EXPECT_NE(refused([](auto& r) { r.model = "CogVideoX-5b"; }).find("catalogue"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.gpu = "RTX 5090"; }).find("GPU"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.gpu = "H800"; }).find("GPU"), std::string::npos);  // its links differ
  EXPECT_NE(refused([](auto& r) { r.dtype = "nvfp4 linear"; }).find("quantised"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.caching = "TeaCache 0.1"; }).find("cache"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.parallel = "USP 2, split not stated"; }).find("share"),
            std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.parallel = "cfg 2 x pipefusion 2"; }).find("share"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.resolution = "input image size unknown"; }).find("size"),
            std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.frames = ""; }).find("frames"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.steps = "30 + 3"; }).find("steps"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.backend = "xformers"; }).find("xformers"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.backend = "video_sparse_attn"; }).find("sparse"), std::string::npos);
  EXPECT_NE(refused([](auto& r) { r.backend_settings = "sparsity ."; }), "");
}

TEST(Generations, KernelsAreThoseOfTheCard) {
  PublishedGeneration row = video();
  row.backend = "FA2";
  EXPECT_EQ(backend_of(row, "h100-sxm").name, "torch_sdpa");  // fa is FlashAttention 3 there
  EXPECT_EQ(backend_of(row, "a100-sxm").name, "fa");
  row.backend = "Sage2++ 8+8";
  EXPECT_EQ(backend_of(row, "rtx-4090").settings, "release=2");
}

TEST(Generations, BaselinesChangeOneThing) {
  PublishedGeneration row = video();
  row.baseline = "1 GPU same compile";
  row.compile = "on";
  ASSERT_TRUE(baseline_of(row));
  EXPECT_EQ(baseline_of(row)->num_gpus, 1U);
  EXPECT_EQ(baseline_of(row)->compile, "on");
  row.baseline = "1 GPU eager";
  EXPECT_EQ(baseline_of(row)->compile, "off");
  row.baseline = "FA2 same plot";
  EXPECT_EQ(baseline_of(row)->backend, "FA2 same plot");
  EXPECT_EQ(baseline_of(row)->num_gpus, 2U);
  row.baseline = "ulysses 2";
  row.parallel = "ring 2";
  EXPECT_EQ(baseline_of(row)->parallel, "ulysses 2");
  row.baseline = "teacher";
  EXPECT_FALSE(baseline_of(row));
}

TEST(Generations, ShapesOfKernelsAreReadOrTheirBenchmarks) {
  PublishedGeneration row;
  row.resolution = "seq 8K";
  row.backend_settings = "head dim 128, non-causal; batch and heads not stated";
  EXPECT_EQ(attention_call(row).tokens, 8192);
  EXPECT_EQ(attention_call(row).head_dim, 128U);
  row.resolution = "[1,12,24960,64] = B,H,L,D";
  EXPECT_EQ(attention_call(row).heads, 12U);
  EXPECT_EQ(attention_call(row).head_dim, 64U);
  row.resolution = "115K tokens";
  EXPECT_NE(complaint([&] { attention_call(row); }), "");
}

}  // namespace
}  // namespace tpsim::launch
