// dual_chunk_flash_attn: its plan reads every KV token once, its price grows with what it does, and it is
// chosen for the models that need it and for no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"
#include "tests/unit/attention/gpu.h"

namespace tpsim::attention::dual_chunk_test {
namespace {

proto::HardwareProfile gpu() {
  proto::HardwareProfile profile = tpsim::testing::gpu();
  profile.set_kernel_launch_seconds(5e-6);  // host operations are priced by it
  return profile;
}

std::unique_ptr<AttentionBackend> backend() {
  return create_attention_backend("dual_chunk_flash_attn", gpu(), 16);
}

LayerShape layer(std::uint32_t chunk_len) {
  LayerShape shape;
  shape.num_q_heads = 28;
  shape.num_kv_heads = 4;
  shape.head_dim = shape.v_head_dim = 128;
  shape.dual_chunk_len = chunk_len;
  return shape;
}

ForwardMetadata decode(const std::vector<std::uint32_t>& lens, std::uint32_t bucket = 0) {
  ForwardMetadata metadata;
  metadata.forward_mode = proto::DECODE;
  metadata.decode_seq_lens = lens;
  metadata.capture_bucket = bucket;
  return metadata;
}

KernelCost extend_cost(AttentionBackend& backend, const LayerShape& shape, std::uint32_t prefix,
                       std::uint32_t tokens) {
  const std::vector<std::uint32_t> prefixes = {prefix};
  const std::vector<std::uint32_t> lens = {tokens};
  ForwardMetadata metadata;
  metadata.forward_mode = proto::EXTEND;
  metadata.extend_prefix_lens = prefixes;
  metadata.extend_lens = lens;
  backend.init_forward_metadata(metadata);
  return backend.forward_extend(shape);
}

TEST(DualChunkPlan, DecodeReadsEveryTokenOnceInThreeParts) {
  std::mt19937_64 random(1);
  const auto dual = backend();
  for (int round = 0; round < 200; ++round) {
    const auto chunk = static_cast<std::uint32_t>(16 * (1 + random() % 500));
    std::vector<std::uint32_t> lens;
    for (std::uint64_t i = 1 + random() % 20; i > 0; --i)
      lens.push_back(static_cast<std::uint32_t>(1 + random() % (6 * chunk)));
    lens.push_back(2 * chunk);
    lens.push_back(2 * chunk + 1);
    dual->init_forward_metadata(decode(lens));
    const DecodePlan& plan = dual->decode_plan(layer(chunk));
    ASSERT_EQ(plan.items.size(), lens.size());
    for (std::size_t i = 0; i < lens.size(); ++i) {
      // Inter, succ and own chunk one behind the other; own is where the new token lies.
      EXPECT_EQ(plan.inter_items[i].kv_begin, 0U);
      EXPECT_EQ(plan.inter_items[i].kv_end, plan.succ_items[i].kv_begin);
      EXPECT_EQ(plan.succ_items[i].kv_end, plan.items[i].kv_begin);
      EXPECT_EQ(plan.items[i].kv_end, lens[i]);
      EXPECT_EQ(plan.items[i].kv_begin, (lens[i] - 1) / chunk * chunk);
      for (const DecodeItem* item : {&plan.items[i], &plan.succ_items[i], &plan.inter_items[i]}) {
        const std::uint32_t tokens = item->kv_end - item->kv_begin;
        if (tokens == 0) continue;
        EXPECT_GE(item->splits * item->split_tokens, tokens);
        EXPECT_LT((item->splits - 1) * item->split_tokens, tokens);
      }
    }
  }
}

TEST(DualChunkPlan, WithinOneChunkItIsPlainAttentionsWork) {
  const auto dual = backend();
  const auto fa3 = create_attention_backend("fa3", gpu(), 16);
  const std::vector<std::uint32_t> lens = {900, 4000, 17};
  dual->init_forward_metadata(decode(lens));
  fa3->init_forward_metadata(decode(lens));
  const KernelCost mine = dual->forward_decode(layer(8192));
  const KernelCost plain = fa3->forward_decode(layer(0));
  EXPECT_EQ(mine.flops, plain.flops);
  EXPECT_GT(mine.launches, plain.launches);
  EXPECT_GT(mine.seconds, plain.seconds);
}

TEST(DualChunkPlan, DecodePricesTheTokensOfAllParts) {
  const auto dual = backend();
  const LayerShape shape = layer(4096);
  const auto cost = [&](std::uint32_t length) {
    const std::vector<std::uint32_t> lens = {length};
    dual->init_forward_metadata(decode(lens));
    return dual->forward_decode(shape);
  };
  const KernelCost one = cost(4096), two = cost(4097), three = cost(3 * 4096);
  EXPECT_GT(two.launches, one.launches);    // the chunk before
  EXPECT_GT(three.launches, two.launches);  // and all before that
  const double token = 4 * 256 * 2;         // bytes: four heads of K and V
  // Beside them only the results of the parts, in fp32 where the KV range is split.
  EXPECT_GE(three.bytes - one.bytes, 2 * 4096 * token);
  EXPECT_LE(three.bytes - one.bytes, 1.1 * 2 * 4096 * token);
}

TEST(DualChunkPlan, ACapturedDecodeRunsAllThreeCalls) {
  const auto dual = backend();
  dual->init_cuda_graph_state(8);
  dual->init_forward_metadata_capture_cuda_graph(8);
  const std::vector<std::uint32_t> lens(8, 100);
  dual->init_forward_metadata(decode(lens));
  const KernelCost eager = dual->forward_decode(layer(4096));
  const double eager_host = dual->plan_host_seconds();
  dual->init_forward_metadata_replay_cuda_graph(decode(lens, 8));
  const KernelCost captured = dual->forward_decode(layer(4096));
  EXPECT_GT(captured.launches, eager.launches);
  // Tables are made on the host, request by request, in both.
  EXPECT_EQ(dual->plan_host_seconds(), eager_host);
  const std::vector<std::uint32_t> beyond(8, 5000);
  dual->init_forward_metadata_replay_cuda_graph(decode(beyond, 8));
  dual->forward_decode(layer(4096));
  EXPECT_GT(dual->plan_host_seconds(), eager_host);
}

TEST(DualChunkPlan, PrefillGoesHeadByHeadAndChunkByChunk) {
  const auto dual = backend();
  const LayerShape shape = layer(4096);
  const KernelCost whole = extend_cost(*dual, shape, 0, 3 * 4096);
  KernelCost pieces;
  for (std::uint32_t at = 0; at < 3; ++at) pieces += extend_cost(*dual, shape, at * 4096, 4096);
  // Chunks are separate kernels anyway.
  EXPECT_NEAR(whole.flops, pieces.flops, 1e-9 * whole.flops);
  EXPECT_NEAR(whole.seconds, pieces.seconds, 0.01 * whole.seconds);
  // Causal in the own chunk, everything of those before it: as many products as plain attention has, and at
  // least one call for each of the 28 heads and each of the 1 + 2 + 3 parts.
  const double products = 4096.0 * 4096 * (3 * 0.5 + 3);
  EXPECT_NEAR(whole.flops, products * 28 * 4 * 128, 0.05 * whole.flops);
  EXPECT_GT(whole.launches, 28U * 6);
  EXPECT_TRUE(dual->host_cost().synchronous);
}

TEST(DualChunkPlan, NoMoreTilesThanOneChunkHasRows) {
  const auto dual = backend();
  const std::vector<std::uint32_t> prefixes = {30, 0};
  const std::vector<std::uint32_t> lens = {100, 64};
  ForwardMetadata metadata;
  metadata.forward_mode = proto::EXTEND;
  metadata.extend_prefix_lens = prefixes;
  metadata.extend_lens = lens;
  dual->init_forward_metadata(metadata);
  const ExtendPlan& plan = dual->extend_plan(layer(64));
  EXPECT_EQ(plan.chunk_len, 64U);
  EXPECT_EQ(plan.items.size(), 2U);
}

std::string sentence(const std::string& name, bool dual_chunk) {
  CombinationRequest request;
  request.pair = {name, name};
  request.gpu = "h200-sxm";
  request.generation = GpuGeneration::kHopper;
  request.dual_chunk = dual_chunk;
  return obstacle(request);
}

TEST(DualChunkPlan, TheModelChoosesItAndNothingElse) {
  EXPECT_EQ(choose_backend({.generation = GpuGeneration::kHopper, .dual_chunk = true}).backend,
            "dual_chunk_flash_attn");
  EXPECT_EQ(choose_backend({.generation = GpuGeneration::kAmpere, .dual_chunk = true}).backend,
            "dual_chunk_flash_attn");
  EXPECT_EQ(choose_backend({.generation = GpuGeneration::kHopper}).backend, "fa3");
  EXPECT_EQ(sentence("dual_chunk_flash_attn", true), "");
  EXPECT_NE(sentence("fa3", true).find("has no dual chunk attention"), std::string::npos);
  EXPECT_NE(sentence("fa3", true).find("use dual_chunk_flash_attn"), std::string::npos);
  EXPECT_NE(sentence("dual_chunk_flash_attn", false).find("dual_chunk_attention_config"), std::string::npos);
}

}  // namespace
}  // namespace tpsim::attention::dual_chunk_test
