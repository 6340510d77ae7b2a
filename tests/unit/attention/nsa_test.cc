// The kernels of sparse attention by device and KV cache, what they want stored, and the plans and prices of
// nsa.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention/selection/registry.h"
#include "attention/sparse_cost.h"
#include "attention/sparse_kernels.h"
#include "proto/base/error.h"

namespace tpsim::attention::nsa_test {
namespace {

constexpr GpuGeneration kHopper = GpuGeneration::kHopper;
constexpr GpuGeneration kBlackwell = GpuGeneration::kBlackwell;
constexpr GpuGeneration kSm120 = GpuGeneration::kBlackwellSm120;
constexpr GpuGeneration kRocm = GpuGeneration::kRocm;
constexpr GpuGeneration kXpu = GpuGeneration::kXpu;
constexpr NumberFormat kBf16 = NumberFormat::kBf16;
constexpr NumberFormat kFp8 = NumberFormat::kFp8E4M3;

std::string chosen(GpuGeneration generation, NumberFormat format, std::optional<std::string> prefill = {},
                   std::optional<std::string> decode = {}, bool glm = false, std::uint32_t heads = 16) {
  SparseKernelRequest request;
  request.glm = glm;
  request.num_q_heads = heads;
  request.generation = generation;
  request.kv_format = format;
  request.prefill = std::move(prefill);
  request.decode = std::move(decode);
  try {
    const SparseKernels kernels = choose_sparse_kernels(request);
    return std::string(to_string(kernels.prefill)) + "+" + std::string(to_string(kernels.decode));
  } catch (const UserError& error) {
    return error.what();
  }
}

proto::HardwareProfile gpu(const char* architecture) {
  proto::HardwareProfile profile;
  profile.set_name("test");
  profile.set_architecture(architecture);
  profile.set_multiprocessors(132);
  profile.set_dense_flops_bf16(1e15);
  profile.set_dense_flops_fp8(2e15);
  profile.set_memory_bandwidth(4e12);
  profile.set_l2_bytes(5e7);
  return profile;
}

LayerShape layer(std::uint32_t heads, NumberFormat format, std::uint32_t token_bytes, bool indexer = true) {
  LayerShape shape;
  shape.form = AttentionForm::kSparse;
  shape.num_q_heads = heads;
  shape.num_kv_heads = 1;
  shape.head_dim = 576;
  shape.v_head_dim = 512;
  shape.top_k = 2048;
  shape.kv_format = format;
  shape.token_bytes = token_bytes;
  shape.index_heads = indexer ? 64 : 0;
  shape.index_head_dim = 128;
  return shape;
}

struct Batch {
  std::vector<std::uint32_t> prefixes, extends, decodes;
  ForwardMetadata metadata() const {
    ForwardMetadata out;
    out.forward_mode = extends.empty() ? proto::DECODE : decodes.empty() ? proto::EXTEND : proto::MIXED;
    out.extend_prefix_lens = prefixes;
    out.extend_lens = extends;
    out.decode_seq_lens = decodes;
    return out;
  }
};

// _dsa_split_backend_resolution of SGLang 0.5.23.
TEST(SparseKernels, AreSglangsDefaults) {
  EXPECT_EQ(chosen(kHopper, kBf16), "flashmla_sparse+fa3");
  EXPECT_EQ(chosen(kHopper, kFp8), "flashmla_kv+flashmla_kv");
  EXPECT_EQ(chosen(kBlackwell, kBf16), "flashmla_sparse+trtllm");
  EXPECT_EQ(chosen(kBlackwell, kFp8), "trtllm+trtllm");
  EXPECT_EQ(chosen(kHopper, kFp8, "flashmla_auto"), "flashmla_auto+flashmla_kv");
  EXPECT_EQ(chosen(kHopper, kBf16, "tilelang", "tilelang"), "tilelang+tilelang");
  EXPECT_EQ(chosen(kRocm, kBf16), "triton+triton");
  EXPECT_EQ(chosen(kRocm, kFp8, "tilelang", "aiter"), "tilelang+aiter");
  EXPECT_EQ(chosen(kXpu, kBf16), "intel_xpu+intel_xpu");
  EXPECT_EQ(chosen(kSm120, kFp8, {}, {}, true), "flashinfer_sparse_mla+flashinfer_sparse_mla");
  EXPECT_EQ(chosen(kSm120, kFp8, "triton_sparse_mla", {}, true), "triton_sparse_mla+flashinfer_sparse_mla");
  EXPECT_EQ(chosen(kSm120, kFp8, "tilelang", "tilelang"), "tilelang+tilelang");
  EXPECT_EQ(chosen(kHopper, kBf16, "flashmla_sparse_q8"), "flashmla_sparse_q8+fa3");
  EXPECT_EQ(chosen(kHopper, kFp8, "flashmla_sparse_q8"), "flashmla_sparse_q8+flashmla_kv");
  EXPECT_EQ(chosen(kHopper, kFp8, "triton_sparse_mla"), "triton_sparse_mla+flashmla_kv");
}

TEST(SparseKernels, SayWhatCannotBe) {
  const auto says = [](const std::string& sentence, const char* flag, const char* remedy) {
    EXPECT_NE(sentence.find(flag), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(remedy), std::string::npos) << sentence;
  };
  says(chosen(kHopper, kBf16, "flashmla"), "--nsa-prefill-backend flashmla", "flashmla_sparse");
  says(chosen(kHopper, kBf16, "triton"), "for rocm only", "tilelang");
  says(chosen(kHopper, kBf16, "triton_sparse_mla", {}, false, 128), "up to 32 heads", "flashmla_sparse");
  says(chosen(kHopper, kBf16, {}, "triton_sparse_mla"),
       "--nsa-decode-backend triton_sparse_mla: is for prefill", "fa3");
  says(chosen(kBlackwell, kBf16, "flashmla_sparse_q8"), "for hopper only", "trtllm");
  says(chosen(kSm120, kFp8), "--nsa-prefill-backend trtllm: its kernels are for blackwell only", "tilelang");
  says(chosen(kSm120, kFp8, "tilelang", "tilelang", true), "GLM-5", "flashinfer_sparse_mla");
  says(chosen(kSm120, kFp8, "flashinfer_sparse_mla", "tilelang"), "GLM-5 only", "tilelang");
  says(chosen(kRocm, kBf16, "flashmla_sparse"), "for hopper, blackwell only", "aiter");
  says(chosen(kHopper, kBf16, {}, "trtllm"), "--nsa-decode-backend trtllm", "fa3");
  says(chosen(kBlackwell, kBf16, "fa3"), "--nsa-prefill-backend fa3", "trtllm");
  says(chosen(kHopper, kFp8, {}, "fa3"), "--nsa-decode-backend fa3", "flashmla_kv");
  says(chosen(kHopper, kBf16, "flashmla_kv"), "--nsa-prefill-backend flashmla_kv", "fp8_e4m3");
  says(chosen(kHopper, kFp8, {}, "flashmla_auto"), "--nsa-decode-backend flashmla_auto", "flashmla_kv");
  says(chosen(kHopper, kFp8, {}, "flashmla_sparse"), "--nsa-decode-backend flashmla_sparse", "flashmla_kv");
  says(chosen(kBlackwell, kFp8, "flashmla_sparse"), "with scales", "bf16");
  says(chosen(kHopper, NumberFormat::kFp8E5M2), "--kv-cache-dtype fp8_e5m2", "fp8_e4m3");
  says(chosen(kHopper, NumberFormat::kFp4E2M1), "--kv-cache-dtype fp4_e2m1", "bf16");
}

// calculate_mla_kv_cache_dim, and 132 bytes of an index key.
TEST(SparseKernels, StoreWhatTheyRead) {
  const SparseKernels scaled = {SparseKernel::kFlashMlaKv, SparseKernel::kFlashMlaKv};
  const SparseKernels raw = {SparseKernel::kTrtllm, SparseKernel::kTrtllm};
  EXPECT_EQ(sparse_token_bytes(scaled, kFp8, 512, 64), 656U);
  EXPECT_EQ(sparse_token_bytes(raw, kFp8, 512, 64), 576U);
  EXPECT_EQ(sparse_token_bytes({}, kBf16, 512, 64), 1152U);
  EXPECT_EQ(index_key_bytes(128), 132U);
}

// total_kv_tokens < total_q_tokens * 512: the cache is widened for the 16-bit kernel, on Blackwell only.
TEST(SparseKernels, AutoGoesByTheBatch) {
  const auto kernel = [](GpuGeneration generation, bool fp8, std::uint64_t kv, std::uint64_t q) {
    return to_string(extend_kernel(SparseKernel::kFlashMlaAuto, generation, fp8, kv, q));
  };
  EXPECT_EQ(kernel(kBlackwell, true, 512 * 8 - 1, 8), "flashmla_sparse");
  EXPECT_EQ(kernel(kBlackwell, true, 512 * 8, 8), "flashmla_kv");
  EXPECT_EQ(kernel(kHopper, true, 100, 8), "flashmla_kv");
  EXPECT_EQ(kernel(kHopper, false, 1 << 20, 1), "flashmla_sparse");
  EXPECT_EQ(to_string(extend_kernel(SparseKernel::kFlashMlaKv, kBlackwell, true, 1, 1)), "flashmla_kv");
}

TEST(Nsa, PlansEveryTokenOfTheBatch) {
  auto backend = create_attention_backend("nsa", gpu("hopper"), 64);
  Batch batch{{0, 5000}, {300, 7}, {1, 9000}};
  backend->init_forward_metadata(batch.metadata());
  const SparsePlan& mixed = backend->sparse_plan(layer(16, kBf16, 1152));
  ASSERT_EQ(mixed.items.size(), 4U);
  EXPECT_EQ(mixed.items[1].prefix, 5000U);
  EXPECT_EQ(mixed.items[3].request, 3U);
  EXPECT_EQ(mixed.items[3].prefix, 8999U);
  EXPECT_EQ(mixed.items[3].q_len, 1U);
  EXPECT_EQ(mixed.rows, 64U);  // padded heads
  EXPECT_EQ(mixed.part, 0U);
  batch = {{}, {}, {1, 9000}};
  backend->init_forward_metadata(batch.metadata());
  const SparsePlan& decode = backend->sparse_plan(layer(128, kBf16, 1152));
  EXPECT_EQ(decode.rows, 128U);
  EXPECT_EQ(decode.part, 2048U / 16);  // two requests on 132 multiprocessors
  auto blackwell = create_attention_backend("nsa", gpu("blackwell"), 64);
  blackwell->set_sparse_options({{SparseKernel::kFlashMlaSparse, SparseKernel::kTrtllm}, 2048});
  batch = {{0}, {10}, {}};
  blackwell->init_forward_metadata(batch.metadata());
  EXPECT_EQ(blackwell->sparse_plan(layer(16, kBf16, 1152)).rows, 128U);
}

// Attention stops growing at top_k tokens, the indexer does not; a layer that shares a selection has none.
TEST(Nsa, PricesTheListAndTheIndexer) {
  auto backend = create_attention_backend("nsa", gpu("hopper"), 64);
  backend->set_sparse_options({{}, 2048});
  const auto decode = [&](std::uint32_t length, bool indexer) {
    Batch batch{{}, {}, std::vector<std::uint32_t>(32, length)};
    const ForwardMetadata metadata = batch.metadata();
    backend->init_forward_metadata(metadata);
    return backend->forward_decode(layer(16, kBf16, 1152, indexer)).seconds;
  };
  EXPECT_LT(decode(100, false), decode(2048, false));
  EXPECT_DOUBLE_EQ(decode(2048, false), decode(100000, false));
  EXPECT_LT(decode(2048, true), decode(2049, true));
  EXPECT_LT(decode(10000, true), decode(100000, true));
  EXPECT_GT(decode(10, true), decode(10, false));
  const auto extend = [&](std::uint32_t prefix, std::uint32_t tokens, bool indexer) {
    Batch batch{{prefix}, {tokens}, {}};
    const ForwardMetadata metadata = batch.metadata();
    backend->init_forward_metadata(metadata);
    return backend->forward_extend(layer(16, kBf16, 1152, indexer)).seconds;
  };
  // Up to top_k tokens of context nothing is scored: one token more costs the indexer's pass.
  const double without = extend(1, 2048, true) - extend(1, 2048, false);
  const double before = extend(0, 2048, true) - extend(0, 2048, false);
  EXPECT_GT(without, 3 * before);
}

// Drafts are rows of the decode kernel, each with a list of its own: one draft costs what decoding its token
// does, and a chain no more than as many tokens of different requests.
TEST(Nsa, VerifyingDecodesEveryDraft) {
  auto backend = create_attention_backend("nsa", gpu("hopper"), 64);
  backend->set_sparse_options({{}, 2048});
  for (const std::uint32_t length : {100U, 3000U, 60000U}) {
    const std::vector<std::uint32_t> prefixes(8, length), one(8, 1), four(8, 4), decoded(8, length + 1);
    ForwardMetadata verify;
    verify.forward_mode = proto::TARGET_VERIFY;
    verify.extend_prefix_lens = prefixes;
    const auto verified = [&](const std::vector<std::uint32_t>& lens) {
      verify.extend_lens = lens;
      backend->init_forward_metadata(verify);
      EXPECT_EQ(backend->mla_extend().method, MlaForwardMethod::kAbsorbed);
      return backend->forward_extend(layer(16, kBf16, 1152));
    };
    const auto decode = [&](const std::vector<std::uint32_t>& lens) {
      ForwardMetadata metadata;
      metadata.forward_mode = proto::DECODE;
      metadata.decode_seq_lens = lens;
      backend->init_forward_metadata(metadata);
      return backend->forward_decode(layer(16, kBf16, 1152));
    };
    EXPECT_DOUBLE_EQ(verified(one).seconds, decode(decoded).seconds);
    const KernelCost chain = verified(four);
    EXPECT_GE(chain.seconds, decode(decoded).seconds);
    EXPECT_LE(chain.seconds, decode(std::vector<std::uint32_t>(32, length + 4)).seconds);
    verify.forward_mode = proto::DRAFT_EXTEND;
    EXPECT_DOUBLE_EQ(verified(four).seconds, chain.seconds);
  }
}

// Where no sequence is longer than top_k, dense attention; not in captured pieces, whose attention is
// absorbed.
TEST(Nsa, ShortPrefillsAttendDense) {
  auto backend = create_attention_backend("nsa", gpu("hopper"), 64);
  backend->set_sparse_options({{}, 2048});
  LayerShape expanded = layer(16, kBf16, 1152);
  expanded.form = AttentionForm::kMlaExpanded;
  expanded.num_kv_heads = 16;
  expanded.head_dim = 192;
  expanded.v_head_dim = 128;
  const auto method = [&](std::uint32_t prefix, std::uint32_t tokens, bool pieces) {
    Batch batch{{prefix, 0}, {tokens, 100}, {}};
    ForwardMetadata metadata = batch.metadata();
    metadata.in_pieces = pieces;
    backend->init_forward_metadata(metadata);
    return backend->mla_extend().method;
  };
  EXPECT_EQ(method(0, 2048, false), MlaForwardMethod::kMha);
  EXPECT_EQ(method(1, 2047, false), MlaForwardMethod::kMhaOneShot);
  EXPECT_EQ(method(1, 2048, false), MlaForwardMethod::kAbsorbed);
  EXPECT_EQ(method(0, 2048, true), MlaForwardMethod::kAbsorbed);
  const Batch batch{{0, 0}, {2048, 100}, {}};
  const ForwardMetadata metadata = batch.metadata();
  backend->init_forward_metadata(metadata);
  const double seen = 2048.0 * 2049 / 2 + 100.0 * 101 / 2;
  EXPECT_DOUBLE_EQ(backend->forward_extend(expanded).flops, 2 * seen * 16 * (192 + 128));
  // Heads padded to 64, whole lists; no token is scored.
  EXPECT_DOUBLE_EQ(backend->forward_extend(layer(16, kBf16, 1152)).flops,
                   2 * 2148.0 * 2048 * 64 * (576 + 512));
  // … or what they hold, where the kernel is told.
  backend->set_sparse_options({{}, 2048, true});
  EXPECT_DOUBLE_EQ(backend->forward_extend(layer(16, kBf16, 1152)).flops, 2 * seen * 64 * (576 + 512));
}

// FlashMLA's kernels walk all top_k places of a list, the others what it holds.
TEST(Nsa, FlashMlaWalksTheWholeList) {
  SparsePlan plan;
  plan.top_k = 2048;
  plan.rows = 64;
  plan.items = {{0, 99, 1}, {1, 4999, 1}};
  EXPECT_EQ(load_of(plan).walked, 100 + 2048);
  plan.whole_list = true;
  EXPECT_EQ(load_of(plan).walked, 2 * 2048);
  EXPECT_EQ(load_of(plan).listed, 100 + 2048);
  EXPECT_TRUE(walks_whole_list(SparseKernel::kFlashMlaSparse));
  EXPECT_TRUE(walks_whole_list(SparseKernel::kFlashMlaKv));
  EXPECT_FALSE(walks_whole_list(SparseKernel::kFa3));
  EXPECT_FALSE(walks_whole_list(SparseKernel::kTrtllm));
}

// Factors multiply what the formulas say, of the kernel and of the indexer each its own, and never lead below
// the arithmetic at its peak.
TEST(Nsa, CorrectionsMultiplyAndStopAtTheRoofline) {
  proto::HardwareProfile profile = gpu("hopper");
  SparsePlan plan;
  plan.top_k = 2048;
  plan.rows = 64;
  plan.items = {{0, 5000, 700}};
  const SparseLoad load = load_of(plan);
  const LayerShape shape = layer(64, kBf16, 1152);
  const IndexShape indexer{64, 128};
  const auto with = [&](std::uint32_t attend, std::uint32_t index) {
    proto::HardwareProfile own = profile;
    for (const auto& [name, factor] :
         {std::pair{"attention.nsa.k.extend", attend}, {"attention.nsa.i.extend", index}}) {
      auto& entry = *own.add_efficiencies();
      entry.set_operator_class(name);
      entry.set_compute(0.5);
      entry.set_memory(0.5);
      auto& surface = *entry.add_corrections();
      auto& axis = *surface.add_axes();
      axis.set_feature("requests");
      axis.add_points(1);
      surface.add_factors(factor);
    }
    const SparseCost cost(own, "attention.nsa.k.extend", "attention.nsa.i.extend");
    return std::pair{cost.attend(plan, load, shape, 1152).seconds, cost.index(load, indexer, true).seconds};
  };
  const auto [attend, index] = with(1000, 1000);
  const auto [more_attend, less_index] = with(1500, 900);
  EXPECT_DOUBLE_EQ(more_attend, 1.5 * attend);
  EXPECT_DOUBLE_EQ(less_index, 0.9 * index);
  EXPECT_DOUBLE_EQ(with(1, 1000).first, 2 * load.listed * 64 * (576 + 512) / profile.dense_flops_bf16());
}

}  // namespace
}  // namespace tpsim::attention::nsa_test
