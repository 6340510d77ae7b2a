// Gated delta-net hybrids and dual chunk attention: what of a config.json is read and refused, what is cut
// over the ranks, and what the states cost in memory and in a pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/cost/hardware.h"
#include "rank/llm/layers.h"
#include "rank/llm/linear_attention_cost.h"
#include "rank/llm/memory.h"
#include "tests/unit/rank/config/errors.h"

namespace tpsim::rank {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Qwen3-Next-80B-A3B, as published.
Json next() {
  return {{"architectures", {"Qwen3NextForCausalLM"}},
          {"hidden_size", 2048},
          {"intermediate_size", 5120},
          {"num_hidden_layers", 48},
          {"num_attention_heads", 16},
          {"num_key_value_heads", 2},
          {"head_dim", 256},
          {"vocab_size", 151936},
          {"max_position_embeddings", 262144},
          {"full_attention_interval", 4},
          {"linear_num_key_heads", 16},
          {"linear_num_value_heads", 32},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128},
          {"linear_conv_kernel_dim", 4},
          {"num_experts", 512},
          {"num_experts_per_tok", 10},
          {"moe_intermediate_size", 512},
          {"shared_expert_intermediate_size", 512},
          {"norm_topk_prob", true},
          {"partial_rotary_factor", 0.25},
          {"rope_theta", 10000000},
          {"torch_dtype", "bfloat16"}};
}
ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), "config.json"); }
std::string refused(const Json& json) {
  return refusal([&] { parse(json); });
}
Json with(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return json;
}

TEST(HybridLinear, ReadsQwen3Next) {
  const ModelConfig model = parse(next());
  EXPECT_EQ(model.linear.num_layers, 36U);
  EXPECT_FALSE(model.layers[3].linear);
  EXPECT_TRUE(model.layers[4].linear);
  EXPECT_EQ(model.layers[7].kv_layer, 1U);
  ASSERT_EQ(model.attention.size(), 1U);
  EXPECT_EQ(model.attention[0].num_layers, 12U);
  EXPECT_TRUE(model.attn_output_gate);
  EXPECT_EQ(model.rope_dim(model.ropes.front()), 64U);
  EXPECT_EQ(model.linear.state_bytes, 4U);
  // 80 billion parameters (the published size; 79.7 by the shapes).
  EXPECT_NEAR(static_cast<double>(num_parameters(model, make_shard(model, 1, 0))), 79.7e9, 0.2e9);
}

TEST(HybridLinear, ReadsTheTextModelOfQwen35) {
  const ModelConfig model = load_model_config("Qwen/Qwen3.5-397B-A17B");
  EXPECT_EQ(model.num_layers, 60U);
  EXPECT_EQ(model.linear.num_layers, 45U);
  EXPECT_EQ(model.moe.num_experts, 512U);
  EXPECT_NEAR(static_cast<double>(num_parameters(model, make_shard(model, 1, 0))), 397e9, 2e9);
}

TEST(HybridLinear, RefusesWhatItCannotBe) {
  EXPECT_THAT(refused(with(next(), "linear_num_value_heads", 24)), HasSubstr("linear_num_value_heads 24"));
  EXPECT_THAT(refused(with(next(), "full_attention_interval", 1)), HasSubstr("both kinds"));
  EXPECT_THAT(refused(with(next(), "layer_types", {"linear_attention"})), HasSubstr("layer_types"));
  EXPECT_THAT(refused(with(next(), "layer_types", std::vector<std::string>(48, "sliding_attention"))),
              HasSubstr("linear_attention only"));
  EXPECT_THAT(refused(with(next(), "mamba_ssm_dtype", "fp8")), HasSubstr("mamba_ssm_dtype"));
  EXPECT_THAT(refused(with(next(), "hidden_act", "gelu_pytorch_tanh")), HasSubstr("hidden_act"));
  EXPECT_THAT(refused(with(next(), "mlp_only_layers", {0})), HasSubstr("mlp_only_layers"));
  EXPECT_THAT(refused(with(next(), "partial_rotary_factor", 0.013)), HasSubstr("even number"));
  // 32 query heads can be cut in 32, but not 16 key heads of the delta-nets.
  const ModelConfig model = parse(with(next(), "num_attention_heads", 32));
  EXPECT_THAT(refusal([&] { make_shard(model, 32, 0); }), HasSubstr("16 key heads"));
}

TEST(HybridLinear, ShardsAddUpToTheWhole) {
  const ModelConfig model = parse(next());
  for (const std::uint32_t tp : {2U, 4U, 8U, 16U}) {
    const auto whole = weight_list(model, make_shard(model, 1, 0));
    for (const char* name : {"in_proj_qkvz", "in_proj_ba", "out_proj"}) {
      std::uint64_t elements = 0;
      for (std::uint32_t rank = 0; rank < tp; ++rank) {
        const WeightSpec spec = weight_named(weight_list(model, make_shard(model, tp, rank)), name);
        elements += spec.k * spec.n;
      }
      const WeightSpec& all = weight_named(whole, name);
      EXPECT_EQ(elements, all.k * all.n) << name << " at --tp " << tp;
    }
  }
}

// By hand from SGLang's configs/mamba_utils.py: (8192 x 3 channels in 16 bit + 32 x 128 x 128 in fp32) x 36.
TEST(HybridLinear, AStateTakesWhatSglangsPoolTakes) {
  const ModelConfig model = parse(next());
  const LinearLayers one = linear_layers(model, make_shard(model, 1, 0));
  EXPECT_EQ(one.conv_dim(), 8192U);
  EXPECT_EQ(one.bytes_per_request(), (8192U * 3 * 2 + 32U * 128 * 128 * 4) * 36);
  const LinearLayers half = linear_layers(model, make_shard(model, 2, 1));
  EXPECT_EQ(half.bytes_per_request() * 2, one.bytes_per_request());
  // Keys and values are in the other twelve layers only.
  EXPECT_EQ(kv_bytes_per_token(model, make_shard(model, 1, 0), NumberFormat::kBf16), 12U * 2 * 2 * 256 * 2);
}

TEST(HybridLinear, MemoryIsSharedByTheRatio) {
  const ModelConfig model = parse(next());
  const proto::HardwareProfile h200 = load_hardware("h200-sxm");
  const Shard shard = make_shard(model, 4, 0);
  const KvCapacity capacity = kv_capacity(h200, model, shard, 0.88, NumberFormat::kBf16, 1);
  const double states = static_cast<double>(capacity.state_slots * capacity.state_bytes);
  const double cache = static_cast<double>(capacity.tokens * capacity.kv_bytes_per_token);
  EXPECT_NEAR(states / cache, 0.9, 0.01);
  StatePool few;
  few.slots = 100;
  const KvCapacity more = kv_capacity(h200, model, shard, 0.88, NumberFormat::kBf16, 1, few);
  EXPECT_EQ(more.state_slots, 100U);
  EXPECT_NEAR(static_cast<double>(more.tokens * more.kv_bytes_per_token + 100 * more.state_bytes),
              states + cache, 0.001 * (states + cache));
  few.slots = 1'000'000;
  EXPECT_THAT(refusal([&] { kv_capacity(h200, model, shard, 0.88, NumberFormat::kBf16, 1, few); }),
              HasSubstr("1000000 states"));
}

// By hand from _handle_max_mamba_cache of SGLang 0.5.23's kv_cache_configurator.py.
TEST(HybridLinear, StatesOfDraftsTakeTheirShare) {
  const ModelConfig model = parse(next());
  const proto::HardwareProfile h200 = load_hardware("h200-sxm");
  const Shard shard = make_shard(model, 4, 0);
  const KvCapacity plain = kv_capacity(h200, model, shard, 0.88, NumberFormat::kBf16, 64);
  const auto each = static_cast<double>(plain.state_bytes);
  const double rest = static_cast<double>(plain.tokens * plain.kv_bytes_per_token) +
                      static_cast<double>(plain.state_slots + 1) * each;
  StatePool drafts{.verified_tokens = 4, .running_requests = 48, .slots_per_request = 5};
  const KvCapacity some = kv_capacity(h200, model, shard, 0.88, NumberFormat::kBf16, 64, drafts);
  const double budget = rest * 0.9 / 1.9;
  EXPECT_NEAR(static_cast<double>(some.state_slots), (budget - each * 5) / (each * (1 + 4.0 / 5)), 1);
  EXPECT_EQ(some.verified_state_bytes, 4 * 49 * plain.state_bytes);
  const double taken =
      static_cast<double>(some.state_slots + 1) * each + static_cast<double>(some.verified_state_bytes);
  EXPECT_NEAR(static_cast<double>(some.tokens * some.kv_bytes_per_token), rest - taken, 0.001 * rest);
  // No more run than have states.
  drafts.slots = 20;
  EXPECT_EQ(kv_capacity(h200, model, shard, 0.88, NumberFormat::kBf16, 64, drafts).verified_state_bytes,
            4 * 5 * plain.state_bytes);
}

// A pass that verifies writes a state behind every draft and reads one; what was accepted is copied behind
// it.
TEST(HybridLinear, VerifyingMovesAStateForEveryDraft) {
  const ModelConfig model = parse(next());
  const LinearLayers layers = linear_layers(model, make_shard(model, 4, 0));
  const GatedDeltaCosts costs(load_hardware("h200-sxm"));
  const auto state = static_cast<double>(layers.temporal_bytes());
  const KernelCost four = costs.verify(layers, 16, 4), eight = costs.verify(layers, 16, 8);
  EXPECT_GT(four.bytes, 16 * 5 * state);
  EXPECT_GT(eight.bytes - four.bytes, 16 * 4 * state);
  EXPECT_LT(eight.bytes - four.bytes, 16 * 4 * 1.2 * state);
  EXPECT_EQ(eight.flops, 2 * four.flops);
  // One token a request costs what decoding it does, but for a kernel of its own.
  EXPECT_NEAR(costs.verify(layers, 16, 1).seconds, costs.decode(layers, 16).seconds,
              0.1 * costs.decode(layers, 16).seconds);
  const StateMoves none{.may_snapshot = true}, two{.snapshots = 2, .may_snapshot = true};
  const auto all = static_cast<double>(layers.bytes_per_request());
  EXPECT_DOUBLE_EQ(costs.commit(layers, 16, none).bytes, 32 * all);
  EXPECT_DOUBLE_EQ(costs.commit(layers, 16, two).bytes, 36 * all);
  EXPECT_EQ(costs.commit(layers, 16, {}).launches, 2U);
}

TEST(HybridLinear, PricesFollowStatesAndTokens) {
  const ModelConfig model = parse(next());
  const LinearLayers layers = linear_layers(model, make_shard(model, 1, 0));
  const GatedDeltaCosts costs(load_hardware("h200-sxm"));
  // Each request's state is read and written once.
  const KernelCost few = costs.decode(layers, 8);
  const KernelCost many = costs.decode(layers, 64);
  EXPECT_GT(many.bytes - few.bytes, 56.0 * 2 * static_cast<double>(layers.temporal_bytes()));
  EXPECT_EQ(few.launches, many.launches);
  EXPECT_GT(many.seconds, few.seconds);
  // Prefill: linear in the tokens, and one long request walks longer than several short ones.
  const std::vector<std::uint32_t> one = {8192};
  const std::vector<std::uint32_t> two = {8192, 8192};
  const std::vector<std::uint32_t> short_ones(16, 512);
  EXPECT_NEAR(costs.extend(layers, two).flops, 2 * costs.extend(layers, one).flops, 1);
  EXPECT_NEAR(costs.extend(layers, short_ones).flops, costs.extend(layers, one).flops,
              0.01 * costs.extend(layers, one).flops);
  EXPECT_GT(costs.extend(layers, one).seconds, costs.extend(layers, short_ones).seconds);
}

// Layers of SGLang 0.5.23's Triton kernels on an H200, in microseconds, without their gated norm.
TEST(HybridLinear, PricesAreThoseOfAnH200) {
  const ModelConfig model = parse(next());
  const GatedDeltaCosts costs(load_hardware("h200-sxm"));
  const auto norm = [](const LinearLayers& layers, double tokens) {
    return 3.0 + tokens * 3 * layers.num_v_heads * layers.v_dim * 2 / (4.8e12 * 0.75) * 1e6;
  };
  struct Decode {
    std::uint32_t tp;
    double requests, measured;
  };
  for (const Decode& d :
       {Decode{1, 16, 21.3}, {1, 64, 78.8}, {1, 256, 290.5}, {4, 16, 10.3}, {4, 64, 21.1}, {4, 256, 80.7}}) {
    const LinearLayers layers = linear_layers(model, make_shard(model, d.tp, 0));
    EXPECT_NEAR(costs.decode(layers, d.requests).seconds * 1e6 - norm(layers, d.requests), d.measured,
                0.2 * d.measured)
        << d.requests << " requests at --tp " << d.tp;
  }
  struct Extend {
    std::uint32_t tp, requests, tokens;  // of each
    double measured;
  };
  for (const Extend& e : {Extend{1, 1, 2048, 297.5},
                          {1, 1, 8192, 1111.0},
                          {1, 16, 512, 1003.5},
                          {1, 64, 128, 1050.3},
                          {4, 1, 2048, 118.6},
                          {4, 1, 8192, 439.1},
                          {4, 16, 512, 272.7},
                          {4, 64, 128, 281.0}}) {
    const LinearLayers layers = linear_layers(model, make_shard(model, e.tp, 0));
    const std::vector<std::uint32_t> lens(e.requests, e.tokens);
    EXPECT_NEAR(costs.extend(layers, lens).seconds * 1e6 - norm(layers, double(e.requests) * e.tokens),
                e.measured, 0.2 * e.measured)
        << e.requests << " x " << e.tokens << " tokens at --tp " << e.tp;
  }
}

// What the radix pool's states cost besides: copies of 38.6 MB took 106 us, snapshots more with each layer.
TEST(HybridLinear, MovesOfStatesHaveAPrice) {
  const ModelConfig model = parse(next());
  const LinearLayers layers = linear_layers(model, make_shard(model, 2, 0));
  const GatedDeltaCosts costs(load_hardware("h200-sxm"));
  EXPECT_EQ(costs.moves(layers, {}, false).launches, 0U);
  EXPECT_NEAR(costs.moves(layers, {.copies = 1}, false).seconds, 106e-6, 20e-6);
  EXPECT_NEAR(costs.moves(layers, {.copies = 16}, false).seconds, 1528e-6, 150e-6);
  EXPECT_NEAR(costs.moves(layers, {.clears = 4}, false).seconds, 167e-6, 20e-6);
  // A captured decode pass launches the kernel whether it keeps a state or not.
  EXPECT_EQ(costs.moves(layers, {.may_snapshot = true}, true).launches, 1U);
  EXPECT_GT(costs.moves(layers, {.snapshots = 1}, false).launches, layers.count);
}

Json million() {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"hidden_size", 3584},
          {"intermediate_size", 18944},
          {"num_hidden_layers", 28},
          {"num_attention_heads", 28},
          {"num_key_value_heads", 4},
          {"vocab_size", 152064},
          {"max_position_embeddings", 1010000},
          {"rope_theta", 10000000.0},
          {"use_sliding_window", false},
          {"sliding_window", 32768},
          {"dual_chunk_attention_config",
           {{"chunk_size", 262144}, {"local_size", 8192}, {"original_max_position_embeddings", 262144}}},
          {"torch_dtype", "bfloat16"}};
}

TEST(DualChunkConfig, ReadsQwen25OfAMillionTokens) {
  const ModelConfig model = parse(million());
  EXPECT_EQ(model.dual_chunk.chunk_len(), 253952U);
  EXPECT_EQ(model.context_length, 1010000U);
  EXPECT_EQ(attention_layers(model, make_shard(model, 4, 0)).front().shape.dual_chunk_len, 253952U);
}

TEST(DualChunkConfig, RefusesByName) {
  const auto changed = [](const char* key, const Json& value) {
    Json json = million();
    json["dual_chunk_attention_config"][key] = value;
    return refused(json);
  };
  EXPECT_THAT(changed("sparse_attention_config", Json::array({Json::object()})),
              HasSubstr("sparse_attention_config"));
  EXPECT_THAT(changed("sparse_attention_enabled", true), HasSubstr("sparse_attention_enabled"));
  EXPECT_THAT(changed("local_size", 262144), HasSubstr("local_size 262144"));
  EXPECT_THAT(changed("chunk_size", "long"), HasSubstr("chunk_size"));
  EXPECT_THAT(refused(with(million(), "dual_chunk_attention_config", 7)), HasSubstr("must be an object"));
  EXPECT_THAT(refused(with(million(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})),
              HasSubstr("rope_scaling"));
  EXPECT_THAT(refused(with(million(), "architectures", {"Qwen3ForCausalLM"})), HasSubstr("Qwen3ForCausalLM"));
  Json dense = million();
  dense["dual_chunk_attention_config"]["sparse_attention_config"] = Json::array({Json::object()});
  dense["dual_chunk_attention_config"]["sparse_attention_enabled"] = false;
  EXPECT_EQ(parse(dense).dual_chunk.chunk_size, 262144U);
}

}  // namespace
}  // namespace tpsim::rank
