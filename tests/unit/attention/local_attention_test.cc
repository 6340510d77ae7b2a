// Layers that attend within chunks: cut into chunks, and priced so, by the backends whose kernels do.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/planned_backend.h"
#include "attention/selection/registry.h"

namespace tpsim::attention::local_attention_test {
namespace {

proto::HardwareProfile gpu() {
  proto::HardwareProfile profile;
  profile.set_name("test");
  profile.set_architecture("hopper");
  profile.set_multiprocessors(132);
  profile.set_dense_flops_bf16(1e15);
  profile.set_memory_bandwidth(4e12);
  profile.set_kernel_launch_seconds(5e-6);
  return profile;
}

LayerShape layer(std::uint32_t chunk) {
  LayerShape shape;
  shape.num_q_heads = 40;
  shape.num_kv_heads = 8;
  shape.head_dim = shape.v_head_dim = 128;
  shape.attention_chunk = chunk;
  return shape;
}

double decode_seconds(AttentionBackend& backend, const LayerShape& shape) {
  const std::vector<std::uint32_t> lens(32, 100'000);
  ForwardMetadata metadata;
  metadata.forward_mode = proto::DECODE;
  metadata.decode_seq_lens = lens;
  backend.init_forward_metadata(metadata);
  return backend.forward_decode(shape).seconds;
}

double extend_seconds(AttentionBackend& backend, const LayerShape& shape) {
  const std::vector<std::uint32_t> prefixes = {50'000}, lens = {8192};
  ForwardMetadata metadata;
  metadata.forward_mode = proto::EXTEND;
  metadata.extend_prefix_lens = prefixes;
  metadata.extend_lens = lens;
  backend.init_forward_metadata(metadata);
  return backend.forward_extend(shape).seconds;
}

TEST(LocalAttention, OnlyWhoCutsChunksPaysForChunks) {
  for (const char* name : {"fa3", "triton"}) {
    const bool local = find_backend(name, "").row.local_attention;
    EXPECT_EQ(local, std::string(name) == "fa3");
    const auto backend = create_attention_backend(name, gpu(), 1);
    if (local) {
      EXPECT_LT(decode_seconds(*backend, layer(8192)), 0.5 * decode_seconds(*backend, layer(0)));
      EXPECT_LT(extend_seconds(*backend, layer(8192)), 0.5 * extend_seconds(*backend, layer(0)));
    } else {
      EXPECT_EQ(decode_seconds(*backend, layer(8192)), decode_seconds(*backend, layer(0)));
      EXPECT_EQ(extend_seconds(*backend, layer(8192)), extend_seconds(*backend, layer(0)));
    }
    // What it means stays: numeric execution carries the plan out.
    const std::vector<std::uint32_t> lens = {20'000};
    ForwardMetadata metadata;
    metadata.forward_mode = proto::DECODE;
    metadata.decode_seq_lens = lens;
    backend->init_forward_metadata(metadata);
    EXPECT_EQ(backend->decode_plan(layer(8192)).items.front().kv_begin, 16384u) << name;
  }
}

}  // namespace
}  // namespace tpsim::attention::local_attention_test
