// Loads of attention over chosen blocks of tokens, and their prices beside any backend.
#include "attention/block_sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/selection/registry.h"
#include "rank/cost/hardware.h"

namespace tpsim::attention {
namespace {

LayerShape layer_of_blocks(NumberFormat kv_format = NumberFormat::kBf16) {
  return {.form = AttentionForm::kBlockSparse,
          .num_q_heads = 32,
          .num_kv_heads = 2,
          .head_dim = 128,
          .v_head_dim = 128,
          .top_k = 2048,
          .select_block = 128,
          .index_heads = 2,
          .index_head_dim = 128,
          .kv_format = kv_format};
}

// Token by token.
TEST(BlockSparseLoad, CountsTheBlocksOfEveryQueryToken) {
  const LayerShape layer = layer_of_blocks();
  for (const SparseItem& item : std::vector<SparseItem>{
           {0, 0, 1}, {0, 0, 700}, {0, 2040, 30}, {0, 2048, 1}, {0, 127, 4000}, {0, 100000, 3}}) {
    const SparseLoad load = block_sparse_load({&item, 1}, layer);
    double walked = 0, scored = 0, searching = 0, searched = 0;
    for (std::uint32_t length = item.prefix + 1; length <= item.prefix + item.q_len; ++length) {
      const std::uint32_t blocks = (length + 127) / 128;
      walked += 128.0 * std::min(blocks, 16U);
      scored += length;
      searching += blocks > 16 ? 1 : 0;
      searched += blocks > 16 ? blocks : 0;
    }
    EXPECT_EQ(load.walked, walked) << item.prefix << " " << item.q_len;
    EXPECT_EQ(load.scored, scored) << item.prefix << " " << item.q_len;
    EXPECT_EQ(load.searching, searching) << item.prefix << " " << item.q_len;
    EXPECT_EQ(load.searched, searched) << item.prefix << " " << item.q_len;
    EXPECT_EQ(load.longest_row, (item.prefix + item.q_len + 127) / 128);
    EXPECT_LE(load.distinct, load.walked);
  }
}

// The named backend serves plain layers alone: the same price of these beside any of them.
TEST(BlockSparse, IsPricedAlikeBesideAnyBackend) {
  const auto h200 = rank::load_hardware("h200-sxm");
  const std::vector<std::uint32_t> lengths = {5000, 300};
  ForwardMetadata batch;
  batch.forward_mode = proto::DECODE;
  batch.decode_seq_lens = lengths;
  const SparseItem items[] = {{0, 4999, 1}, {1, 299, 1}};
  const double alone = BlockSparse(h200).cost(items, layer_of_blocks(), true).seconds;
  for (const char* const name : {"fa3", "triton", "flashinfer", "trtllm_mha"}) {
    const auto backend = create_attention_backend(name, h200, name == std::string("trtllm_mha") ? 64 : 1);
    backend->init_forward_metadata(batch);
    EXPECT_EQ(backend->forward_decode(layer_of_blocks()).seconds, alone) << name;
  }
}

TEST(BlockSparse, LongerContextsCostTheIndexerAlone) {
  for (const char* const gpu : {"h100-sxm", "h200-sxm", "b200", "b300", "gb300", "mi300x"}) {
    const BlockSparse price(rank::load_hardware(gpu));
    for (const NumberFormat format : {NumberFormat::kBf16, NumberFormat::kFp8E4M3}) {
      double last = 0;
      for (std::uint32_t prefix = 4096; prefix <= 1U << 20; prefix *= 2) {
        std::vector<SparseItem> items;
        for (std::uint32_t i = 0; i < 16; ++i) items.push_back({i, prefix, 1});
        const double seconds = price.cost(items, layer_of_blocks(format), true).seconds;
        EXPECT_GT(seconds, 0.9 * last) << gpu << " " << prefix;
        EXPECT_TRUE(last == 0 || seconds < 2.3 * last) << gpu << " " << prefix;
        last = seconds;
      }
    }
  }
}

}  // namespace
}  // namespace tpsim::attention
