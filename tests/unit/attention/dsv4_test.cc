// Loads of attention over compressed tokens, and prices of dsv4.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/compressed_load.h"
#include "attention/selection/registry.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention::dsv4_test {
namespace {

LayerShape layer_of(std::uint32_t ratio) {
  return {.form = AttentionForm::kCompressed,
          .num_q_heads = 16,
          .num_kv_heads = 1,
          .head_dim = 512,
          .v_head_dim = 512,
          .sliding_window = 128,
          .compress_ratio = ratio,
          .top_k = ratio == 4 ? 512U : 0U,
          .index_heads = ratio == 4 ? 64U : 0U,
          .index_head_dim = 128,
          .kv_format = NumberFormat::kFp8E4M3,
          .token_bytes = 584};
}

// Token by token.
TEST(CompressedLoad, CountsWhatEveryQueryTokenReads) {
  for (const std::uint32_t ratio : {0U, 4U, 128U}) {
    const LayerShape layer = layer_of(ratio);
    for (const SparseItem& item : std::vector<SparseItem>{
             {0, 0, 1}, {0, 0, 700}, {0, 1000, 300}, {0, 2040, 30}, {0, 5000, 1}, {0, 127, 400}}) {
      const SparseLoad load = compressed_load({&item, 1}, layer);
      double listed = 0, scored = 0, searching = 0, searched = 0;
      for (std::uint32_t length = item.prefix + 1; length <= item.prefix + item.q_len; ++length) {
        const std::uint32_t entries = ratio == 0 ? 0 : length / ratio;
        listed += std::min(length, 128U) + (ratio == 4 ? std::min(entries, 512U) : entries);
        if (ratio != 4) continue;
        scored += entries;
        searching += entries > 512 ? 1 : 0;
        searched += entries > 512 ? entries : 0;
      }
      EXPECT_EQ(load.queries, item.q_len);
      EXPECT_EQ(load.listed, listed) << ratio << " " << item.prefix;
      EXPECT_EQ(load.scored, scored) << ratio << " " << item.prefix;
      EXPECT_EQ(load.searching, searching) << ratio << " " << item.prefix;
      EXPECT_EQ(load.searched, searched) << ratio << " " << item.prefix;
      EXPECT_LE(load.distinct, load.listed);
    }
  }
}

double seconds_of(AttentionBackend& backend, const LayerShape& layer, std::vector<std::uint32_t> prefixes,
                  std::vector<std::uint32_t> extends, const std::vector<std::uint32_t>& decodes) {
  ForwardMetadata batch;
  batch.forward_mode = extends.empty() ? proto::DECODE : proto::EXTEND;
  batch.extend_prefix_lens = prefixes;
  batch.extend_lens = extends;
  batch.decode_seq_lens = decodes;
  backend.init_forward_metadata(batch);
  return (extends.empty() ? backend.forward_decode(layer) : backend.forward_extend(layer)).seconds;
}

TEST(Dsv4, PricesGrowAndTheWindowAloneIsCheapest) {
  for (const char* const gpu : {"h200-sxm", "b200", "mi300x"}) {
    const auto backend = create_attention_backend("dsv4", rank::load_hardware(gpu), 256);
    for (const std::uint32_t ratio : {0U, 4U, 128U}) {
      const LayerShape layer = layer_of(ratio);
      double last = 0;
      for (std::uint32_t new_tokens = 512; new_tokens <= 16384; new_tokens *= 2) {
        const double seconds = seconds_of(*backend, layer, {0}, {new_tokens}, {});
        EXPECT_GT(seconds, last) << gpu << " " << ratio << " " << new_tokens;
        last = seconds;
      }
      EXPECT_GE(seconds_of(*backend, layer, {}, {}, std::vector<std::uint32_t>(256, 8192)),
                seconds_of(*backend, layer, {}, {}, std::vector<std::uint32_t>(8, 8192)));
    }
    const auto decode = [&](std::uint32_t ratio) {
      return seconds_of(*backend, layer_of(ratio), {}, {}, std::vector<std::uint32_t>(32, 16384));
    };
    EXPECT_LE(decode(0), decode(128));
    EXPECT_LT(decode(128), decode(4));
  }
}

TEST(Dsv4, ServesDeepseekV4AndNothingElse) {
  Selection selection;
  selection.generation = GpuGeneration::kBlackwell;
  selection.compressed = selection.sliding_window = selection.sinks = true;
  EXPECT_EQ(choose_backend(selection).backend, "dsv4");
  EXPECT_NE(unfit(find_backend("triton", "").row, selection), "");
  CombinationRequest request;
  static_cast<Selection&>(request) = selection;
  request.pair = {"dsv4", "dsv4"};
  request.page_size = 256;
  request.kv_format = NumberFormat::kFp8E4M3;
  EXPECT_EQ(obstacle(request), "");
  request.kv_format = NumberFormat::kBf16;
  EXPECT_NE(obstacle(request), "");
  selection.compressed = false;
  EXPECT_NE(unfit(find_backend("compressed", "").row, selection), "");
}

}  // namespace
}  // namespace tpsim::attention::dsv4_test
