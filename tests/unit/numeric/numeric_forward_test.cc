// The forward pass on its ranks: shards, whole experts, page tables and windows against the dense reference.
#include "rank/numeric/numeric_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "proto/base/error.h"
#include "rank/numeric/dense_reference.h"
#include "rank/weights/checkpoint.h"
#include "rank/weights/dummy_weights.h"
#include "tests/unit/numeric/gpu.h"

namespace tpsim::rank {
namespace {

std::string folder_of(const std::string& name) { return std::string(TPSIM_MODELS) + "/" + name; }

// One model on `tp` ranks in this process, and sequences that run through it.
class Cluster {
 public:
  Cluster(const ModelConfig& model, const TensorSource& weights, std::uint32_t tp, NumericOptions options)
      : model_(model), options_(options), collectives_(tp), pool_(2) {
    options_.tag_pages = true;
    forward_ = std::make_unique<NumericForward>(
        model, load_ranks(model, weights, options_, collectives_), options_,
        attention::create_attention_backend("triton", testing::gpu(), options_.page_size), collectives_,
        pool_);
  }

  // Extends one sequence, whose pages are `table`, and returns the logits behind its last token.
  std::vector<float> extend(const std::vector<std::uint32_t>& tokens, std::uint32_t prefix,
                            const std::vector<std::uint32_t>& table) {
    const std::vector<std::uint32_t> q_lens = {static_cast<std::uint32_t>(tokens.size())};
    const std::vector<std::uint32_t> prefixes = {prefix};
    const std::vector<std::uint32_t> seq_lens = {prefix + 1};
    const std::vector<std::span<const std::uint32_t>> tables = {table};
    TokenBatch batch;
    if (tokens.size() == 1 && prefix > 0) {
      batch.metadata.forward_mode = proto::DECODE;
      batch.metadata.decode_seq_lens = seq_lens;
    } else {
      batch.metadata.forward_mode = proto::EXTEND;
      batch.metadata.extend_lens = q_lens;
      batch.metadata.extend_prefix_lens = prefixes;
    }
    batch.token_ids = tokens;
    batch.q_lens = q_lens;
    batch.prefix_lens = prefixes;
    batch.page_tables = tables;
    const std::span<const float> logits = forward_->forward(batch);
    return {logits.begin(), logits.end()};
  }

  NumericForward& forward() { return *forward_; }

 private:
  const ModelConfig model_;
  NumericOptions options_;
  LocalCollectives collectives_;
  ThreadPool pool_;
  std::unique_ptr<NumericForward> forward_;
};

NumericOptions options_of(std::uint32_t page_size, std::uint32_t num_pages) {
  NumericOptions options;
  options.page_size = page_size;
  options.num_pages = num_pages;
  return options;
}

std::vector<std::uint32_t> some_tokens(std::uint32_t count, std::uint32_t vocab) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back((i * 37 + 11) % vocab);
  return tokens;
}

double difference(const std::vector<float>& mine, const std::vector<double>& all, std::size_t row) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const double wanted = all[row * mine.size() + i];
    largest = std::max(largest, std::fabs(wanted));
    worst = std::max(worst, std::fabs(wanted - mine[i]));
  }
  return worst / largest;
}

TEST(NumericForward, ChunksAndDecodesOfEveryModelAgreeWithTheDenseReference) {
  for (const char* name : {"llama", "gemma2", "deepseek-v3", "gpt-oss", "qwen3-moe"}) {
    const ModelConfig model = load_model_config(folder_of(name));
    const Checkpoint weights(folder_of(name));
    const std::vector<std::uint32_t> tokens = some_tokens(40, model.vocab_size);
    const std::vector<double> wanted = DenseReference(model, weights).forward(tokens);
    for (const std::uint32_t tp : {1U, 4U, 8U}) {
      Cluster cluster(model, weights, tp, options_of(4, 20));
      const std::vector<std::uint32_t> table = {17, 3, 5, 4, 9, 0, 1, 12, 11, 2};
      std::uint32_t at = 0;
      for (const std::uint32_t chunk : {8U, 12U, 16U, 1U, 1U, 1U, 1U}) {
        const auto first = tokens.begin() + at;
        const std::vector<float> logits = cluster.extend({first, first + chunk}, at, table);
        at += chunk;
        EXPECT_LE(difference(logits, wanted, at - 1), 1e-4) << name << " at --tp " << tp << ", token " << at;
      }
    }
  }
}

TEST(NumericForward, WholeExpertsGiveTheSameAsPartsOfAll) {
  for (const char* name : {"mixtral", "deepseek-v2", "gpt-oss", "qwen3-moe"}) {
    const ModelConfig model = load_model_config(folder_of(name));
    const Checkpoint weights(folder_of(name));
    const std::vector<std::uint32_t> tokens = some_tokens(24, model.vocab_size);
    const std::vector<double> wanted = DenseReference(model, weights).forward(tokens);
    for (const std::uint32_t tp : {2U, 8U}) {
      NumericOptions options = options_of(16, 4);
      options.ep_size = tp;
      Cluster cluster(model, weights, tp, options);
      EXPECT_LE(difference(cluster.extend(tokens, 0, {2, 1}), wanted, 23), 1e-4) << name << " --ep " << tp;
    }
  }
}

// A window layer that lets go of what slid out says the same, and holds no more than its window.
TEST(NumericForward, WindowLayersLetGoOfWhatSlidOut) {
  for (const char* name : {"mistral", "gemma3", "gpt-oss"}) {
    const ModelConfig model = load_model_config(folder_of(name));  // windows of 12 tokens
    const Checkpoint weights(folder_of(name));
    const std::vector<std::uint32_t> tokens = some_tokens(60, model.vocab_size);
    const std::vector<double> wanted = DenseReference(model, weights).forward(tokens);
    for (const std::uint32_t page_size : {1U, 4U}) {
      NumericOptions options = options_of(page_size, 64);
      options.free_windows = true;
      Cluster cluster(model, weights, 2, options);
      std::vector<std::uint32_t> table;
      for (std::uint32_t i = 0; i * page_size < tokens.size(); ++i) table.push_back(63 - i);
      std::uint32_t at = 0;
      std::uint32_t peak = 0;
      while (at < tokens.size()) {
        const std::uint32_t chunk = at < 24 ? 8 : 1;
        const auto first = tokens.begin() + at;
        const std::vector<float> logits = cluster.extend({first, first + chunk}, at, table);
        at += chunk;
        ASSERT_LE(difference(logits, wanted, at - 1), 1e-4) << name << ", token " << at;
        peak = cluster.forward().store(0).peak_window_pages();
      }
      EXPECT_LE(peak * page_size, 12 + 8 + page_size) << name;
      EXPECT_LE(cluster.forward().store(1).window_pages() * page_size, 12 + page_size);
      cluster.forward().release_pages(table);
      EXPECT_EQ(cluster.forward().store(0).window_pages(), 0U);
    }
  }
}

TEST(NumericForward, SaysWhatIsMissingOrTooMuchBeforeLoading) {
  const ModelConfig model = load_model_config(folder_of("llama"));
  const Checkpoint other(folder_of("mixtral"));
  EXPECT_THROW(Cluster(model, other, 1, options_of(1, 8)), UserError);
  NumericOptions options = options_of(1, 8);
  options.ep_size = 2;
  EXPECT_THROW(Cluster(model, Checkpoint(folder_of("llama")), 2, options), UserError);  // no experts
  const ModelConfig large = load_model_config("llama-3.1-70b");
  try {
    Cluster cluster(large, DummyWeights(1), 8, options_of(1, 8));
    FAIL() << "a machine of more than 256 GiB?";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("GiB"), std::string::npos) << error.what();
  }
}

TEST(NumericForward, AStaleTokenOfAPageIsNoticed) {
  const ModelConfig model = load_model_config(folder_of("llama"));
  const Checkpoint weights(folder_of("llama"));
  Cluster cluster(model, weights, 1, options_of(4, 8));
  const std::vector<std::uint32_t> tokens = some_tokens(4, model.vocab_size);
  cluster.extend(tokens, 0, {5});
  EXPECT_NO_THROW(cluster.extend(tokens, 4, {5, 6}));
  EXPECT_THROW(cluster.extend(tokens, 4, {3, 7}), std::logic_error);  // page 3 was never written
}

}  // namespace
}  // namespace tpsim::rank
