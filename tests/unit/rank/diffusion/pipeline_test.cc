// Pipelines of the catalogue: their sizes, and how what they take follows from what is asked.
#include "rank/diffusion/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "rank/cost/hardware.h"

namespace tpsim::rank {
namespace {

PipelinePlan plan_of(const PipelineConfig& config, const std::string& backend = "fa") {
  PipelinePlan plan;
  const attention::DiffusionBackend& row = attention::find_diffusion_backend("backend", backend);
  for (const PipelineComponent& component : config.components)
    plan.attention[component.name] = {&row, &row, attention::read_diffusion_parameters(row, "")};
  return plan;
}

GenerationRequest request_of(const PipelineConfig& config) {
  const SamplingDefaults& defaults = config.defaults;
  GenerationRequest request;
  request.width = defaults.width;
  request.height = defaults.height;
  request.frames = defaults.frames;
  request.steps = defaults.steps;
  request.guided = defaults.guided;
  if (config.needs_image) request.images = {{defaults.width, defaults.height}};
  return request;
}

GenerationCost cost_of(const PipelineConfig& config, const PipelinePlan& plan,
                       const GenerationRequest& request) {
  return PipelineCost(config, plan, load_hardware("h200-sxm")).generate(request);
}

const StageCost& denoising(const GenerationCost& cost) {
  return *std::ranges::find_if(cost.stages,
                               [](const StageCost& stage) { return stage.component == "transformer"; });
}

double flops_of(const StageCost& stage) {
  double sum = 0;
  for (const OperatorShare& share : stage.operators) sum += share.flops;
  return sum;
}

// As Diffusers 0.42.1 counts the parameters of these classes, built on a GPU (measure_diffusion.py), and of
// Wan's two as their publishers state them.
TEST(DiffusionPipelines, TransformersHaveTheirParameters) {
  const std::pair<const char*, double> kCounts[] = {
      {"wan2.1-t2v-1.3b", 1.42e9}, {"wan2.1-t2v-14b", 14.29e9},  {"wan2.2-ti2v-5b", 5.000e9},
      {"flux.2-dev", 32.223e9},    {"flux.2-klein-4b", 3.876e9}, {"qwen-image", 20.430e9},
      {"z-image-turbo", 6.155e9},  {"sd3.5-large", 8.057e9},     {"ltx-2", 18.876e9}};
  for (const auto& [name, parameters] : kCounts) {
    const PipelineConfig config = load_pipeline(name);
    const auto transformer = std::ranges::find(config.components, "transformer", &PipelineComponent::name);
    ASSERT_NE(transformer, config.components.end()) << name;
    EXPECT_NEAR(double(transformer->parameters) / parameters, 1, 0.002) << name;
  }
}

TEST(DiffusionPipelines, EveryOneOfTheCatalogueIsPriced) {
  for (const std::string& name : pipeline_catalogue()) {
    SCOPED_TRACE(name);
    const PipelineConfig config = load_pipeline(name);
    const GenerationCost cost = cost_of(config, plan_of(config), request_of(config));
    double sum = 0;
    double weights = 0;
    for (const StageCost& stage : cost.stages) {
      sum += stage.seconds;
      EXPECT_GE(stage.seconds * 1.0000001, std::max(stage.device_seconds, stage.host_seconds)) << stage.name;
      EXPECT_LE(stage.peak_bytes, cost.peak_bytes) << stage.name;
    }
    for (const PipelineComponent& component : config.components)
      weights += double(component.parameters) * component.bytes_per_parameter;
    EXPECT_NEAR(sum, cost.seconds, 1e-9 * sum);
    EXPECT_GT(cost.peak_bytes, weights);  // all are resident
  }
}

TEST(DiffusionPipelines, MoreWorkTakesLonger) {
  const PipelineConfig config = load_pipeline("wan2.1-t2v-1.3b");
  const PipelinePlan plan = plan_of(config);
  GenerationRequest request = request_of(config);
  request.frames = 17;
  request.steps = 10;
  const double seconds = cost_of(config, plan, request).seconds;
  for (const auto more :
       {+[](GenerationRequest& r) { r.steps = 20; }, +[](GenerationRequest& r) { r.frames = 33; },
        +[](GenerationRequest& r) { r.width *= 2; }, +[](GenerationRequest& r) { r.outputs = 2; }}) {
    GenerationRequest larger = request;
    more(larger);
    EXPECT_GT(cost_of(config, plan, larger).seconds, 1.2 * seconds);
  }
  request.guided = false;
  EXPECT_LT(cost_of(config, plan, request).seconds, 0.7 * seconds);
}

// However GPUs share the tokens, guidance apart, all together do what one does.
TEST(DiffusionPipelines, SharingConservesTheArithmetic) {
  const PipelineConfig config = load_pipeline("wan2.1-t2v-14b");
  const GenerationRequest request = request_of(config);
  const PipelinePlan alone = plan_of(config);
  const GenerationCost one = cost_of(config, alone, request);
  for (const auto share :
       {+[](PipelinePlan& p) { p.ulysses = 4; }, +[](PipelinePlan& p) { p.ring = 4; },
        +[](PipelinePlan& p) { p.kv_gather = 4; }, +[](PipelinePlan& p) { p.ulysses = p.ring = 2; },
        +[](PipelinePlan& p) { p.cfg = p.ulysses = 2; }}) {
    PipelinePlan plan = alone;
    plan.num_gpus = 4;
    share(plan);
    const GenerationCost four = cost_of(config, plan, request);
    EXPECT_NEAR(4 * flops_of(denoising(four)) / flops_of(denoising(one)), 1, 0.03);
    EXPECT_LT(denoising(four).seconds, 0.4 * denoising(one).seconds);
    EXPECT_GT(denoising(four).seconds, 0.25 * denoising(one).seconds);
    EXPECT_GT(denoising(four).sent_bytes, 0);
  }
  EXPECT_EQ(denoising(one).sent_bytes, 0);
}

TEST(DiffusionPipelines, OffloadTakesTimeAndSavesMemory) {
  const PipelineConfig config = load_pipeline("flux.1-dev");
  const GenerationRequest request = request_of(config);
  PipelinePlan plan = plan_of(config);
  const GenerationCost resident = cost_of(config, plan, request);
  plan.residency["transformer"] = Residency::kLayerwiseOffload;
  const GenerationCost layerwise = cost_of(config, plan, request);
  EXPECT_LT(denoising(layerwise).peak_bytes, 0.6 * denoising(resident).peak_bytes);
  EXPECT_GT(layerwise.seconds, resident.seconds);
  EXPECT_GT(denoising(layerwise).host_link_bytes, 20e9 * request.steps);
}

TEST(DiffusionPipelines, WhatCannotBeIsSaid) {
  EXPECT_FALSE(is_pipeline("llama-3.1-8b"));
  EXPECT_TRUE(is_pipeline("Wan-AI/Wan2.1-T2V-14B-Diffusers"));
  EXPECT_THROW(load_pipeline("/nowhere"), UserError);
  const PipelineConfig config = load_pipeline("wan2.1-t2v-1.3b");  // 12 heads
  PipelinePlan plan = plan_of(config);
  plan.num_gpus = plan.ulysses = 8;
  EXPECT_THROW(cost_of(config, plan, request_of(config)), UserError);
}

}  // namespace
}  // namespace tpsim::rank
