// The forward pass on its ranks: shards, whole experts, page tables and windows against the dense reference.
#include "rank/numeric/numeric_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "attention/selection/registry.h"
#include "proto/base/error.h"
#include "rank/numeric/dense_reference.h"
#include "rank/weights/checkpoint.h"
#include "rank/weights/dummy_weights.h"
#include "tests/unit/attention/gpu.h"
#include "tests/unit/rank/numeric/one_request.h"

namespace tpsim::rank::numeric_forward_test {
namespace {

std::string folder_of(const std::string& name) { return std::string(TPSIM_MODELS) + "/" + name; }

// Another backend, whose plans' layers are noted.
class Spy : public attention::AttentionBackend {
 public:
  explicit Spy(std::set<NumberFormat>& formats)
      : inner_(attention::create_attention_backend("triton", testing::gpu(), 1)), formats_(formats) {}
  std::string_view name() const override { return inner_->name(); }
  void init_cuda_graph_state(std::uint32_t max_bs) override { inner_->init_cuda_graph_state(max_bs); }
  void init_forward_metadata_capture_cuda_graph(std::uint32_t bs) override {
    inner_->init_forward_metadata_capture_cuda_graph(bs);
  }
  void init_forward_metadata_replay_cuda_graph(const attention::ForwardMetadata& metadata) override {
    inner_->init_forward_metadata_replay_cuda_graph(metadata);
  }
  void init_forward_metadata(const attention::ForwardMetadata& metadata) override {
    inner_->init_forward_metadata(metadata);
  }
  attention::KernelCost forward_extend(const attention::LayerShape& layer) override {
    return inner_->forward_extend(layer);
  }
  attention::KernelCost forward_decode(const attention::LayerShape& layer) override {
    return inner_->forward_decode(layer);
  }
  const attention::DecodePlan& decode_plan(const attention::LayerShape& layer) override {
    formats_.insert(layer.kv_format);
    return inner_->decode_plan(layer);
  }
  const attention::ExtendPlan& extend_plan(const attention::LayerShape& layer) override {
    formats_.insert(layer.kv_format);
    return inner_->extend_plan(layer);
  }
  attention::KernelCost plan_cost() const override { return inner_->plan_cost(); }
  double plan_host_seconds() const override { return inner_->plan_host_seconds(); }

 private:
  std::unique_ptr<attention::AttentionBackend> inner_;
  std::set<NumberFormat>& formats_;
};

// One model on `tp` ranks in this process, and sequences that run through it.
class Cluster {
 public:
  Cluster(const ModelConfig& model, const TensorSource& weights, std::uint32_t tp, NumericOptions options,
          const std::string& backend = "triton")
      : model_(model), options_(options), collectives_(tp), pool_(2) {
    options_.tag_pages = true;
    forward_ = std::make_unique<NumericForward>(
        model, load_ranks(model, weights, options_, collectives_), options_,
        attention::create_attention_backend(model.is_sparse() ? "nsa" : backend, testing::gpu(),
                                            options_.page_size),
        collectives_, pool_);
  }

  // Extends one sequence, whose pages are `table`, and returns the logits behind its last token.
  std::vector<float> extend(const std::vector<std::uint32_t>& tokens, std::uint32_t prefix,
                            const std::vector<std::uint32_t>& table) {
    const bool decodes = tokens.size() == 1 && prefix > 0;
    const testing::OneRequest request(tokens, prefix, table, decodes ? proto::DECODE : proto::EXTEND);
    const std::span<const float> logits = forward_->forward(request.batches());
    return {logits.begin(), logits.end()};
  }

  // One pass of requests that belong to data-parallel ranks (ascending `owner`), each with its own three or
  // more pages of its rank's pool: whole sequences are extended, or their last token is decoded.
  std::vector<std::vector<float>> lockstep(const std::vector<std::vector<std::uint32_t>>& sequences,
                                           const std::vector<std::uint32_t>& owner, std::uint32_t dp_size,
                                           bool decodes) {
    struct Of {
      std::vector<std::uint32_t> tokens, q_lens, prefixes, seq_lens;
      std::vector<std::vector<std::uint32_t>> tables;
      std::vector<std::span<const std::uint32_t>> views;
    };
    std::vector<Of> of(dp_size);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Of& rank = of[owner[i]];
      const auto length = static_cast<std::uint32_t>(sequences[i].size());
      const std::uint32_t fresh = decodes ? 1 : length;
      rank.tokens.insert(rank.tokens.end(), sequences[i].end() - fresh, sequences[i].end());
      rank.q_lens.push_back(fresh);
      rank.prefixes.push_back(length - fresh);
      rank.seq_lens.push_back(length);
      const auto mine = static_cast<std::uint32_t>(rank.tables.size());
      std::vector<std::uint32_t> table;
      for (std::uint32_t page = 0; page * options_.page_size < length; ++page)
        table.push_back(options_.num_pages - 1 - (mine * 10 + page));
      rank.tables.push_back(std::move(table));
    }
    std::vector<TokenBatch> batches(dp_size);
    for (std::uint32_t d = 0; d < dp_size; ++d) {
      if (of[d].tokens.empty()) continue;
      TokenBatch& batch = batches[d];
      of[d].views.assign(of[d].tables.begin(), of[d].tables.end());
      batch.metadata.forward_mode = decodes ? proto::DECODE : proto::EXTEND;
      if (decodes) {
        batch.metadata.decode_seq_lens = of[d].seq_lens;
      } else {
        batch.metadata.extend_lens = of[d].q_lens;
        batch.metadata.extend_prefix_lens = of[d].prefixes;
      }
      batch.token_ids = of[d].tokens;
      batch.q_lens = of[d].q_lens;
      batch.prefix_lens = of[d].prefixes;
      batch.page_tables = of[d].views;
    }
    const std::span<const float> logits = forward_->forward(batches);
    std::vector<std::vector<float>> out;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto row = logits.subspan(i * model_.vocab_size, model_.vocab_size);
      out.emplace_back(row.begin(), row.end());
    }
    return out;
  }

  NumericForward& forward() { return *forward_; }

 private:
  const ModelConfig model_;
  NumericOptions options_;
  LocalCollectives collectives_;
  ThreadPool pool_{2};
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
  for (const char* name : {"llama", "gemma2", "deepseek-v3", "deepseek-v32", "glm-moe-dsa", "gpt-oss",
                           "qwen3-moe", "llama4", "glm4-moe", "phi3", "qwen3-next", "qwen3.5-moe"}) {
    const ModelConfig model = load_model_config(folder_of(name));
    const DequantisedSource weights{Checkpoint(folder_of(name))};
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

// What a narrow cache keeps is what the reference attends, whatever its chunks; sparse attention selects from
// the index keys that are kept.
TEST(NumericForward, ACacheThatRoundsAgreesWithAReferenceThatRoundsAlike) {
  struct Case {
    const char* model;
    NumberFormat format;
    bool scaled = false;
  };
  using enum NumberFormat;
  const Case kCases[] = {{"llama", kBf16},
                         {"llama", kFp8E4M3},
                         {"llama", kFp8E5M2},
                         {"llama", kFp4E2M1},
                         {"gemma3", kFp8E4M3},
                         {"gpt-oss", kFp4E2M1},
                         {"deepseek-v32", kBf16},
                         {"deepseek-v32", kFp8E4M3},
                         {"deepseek-v32", kFp8E4M3, true},
                         {"glm-moe-dsa", kFp8E4M3},
                         {"glm-moe-dsa", kFp8E4M3, true}};
  for (const Case& test : kCases) {
    const ModelConfig model = load_model_config(folder_of(test.model));
    const Checkpoint weights(folder_of(test.model));
    const std::vector<std::uint32_t> tokens = some_tokens(40, model.vocab_size);
    const KeptTokens kept = {test.format, test.scaled};
    const std::vector<double> wanted = DenseReference(model, weights, kept).forward(tokens);
    const std::vector<double> exact = DenseReference(model, weights).forward(tokens);
    NumericOptions options = options_of(4, 20);
    options.kv_format = test.format;
    if (test.scaled) options.sparse_token_bytes = model.mla.kv_lora_rank + 2 * model.mla.qk_rope_head_dim;
    Cluster cluster(model, weights, 2, options);
    const std::vector<std::uint32_t> table = {17, 3, 5, 4, 9, 0, 1, 12, 11, 2};
    std::uint32_t at = 0;
    for (const std::uint32_t chunk : {8U, 12U, 16U, 1U, 1U, 1U, 1U}) {
      const auto first = tokens.begin() + at;
      const std::vector<float> logits = cluster.extend({first, first + chunk}, at, table);
      at += chunk;
      const std::string what = std::string(test.model) + " " + std::string(to_string(test.format)) +
                               (test.scaled ? " scaled" : "") + ", token " + std::to_string(at);
      EXPECT_LE(difference(logits, wanted, at - 1), 1e-3) << what;
      EXPECT_GT(difference(logits, exact, at - 1), 1e-3) << what;
    }
  }
}

// Llama 4's chunks of 16 tokens: extends that begin and end in, at and beyond their borders, and decodes on
// both sides of one, by every kind of plan.
TEST(NumericForward, ChunkedAttentionStaysWithinItsChunk) {
  const ModelConfig model = load_model_config(folder_of("llama4"));
  const Checkpoint weights(folder_of("llama4"));
  const std::vector<std::uint32_t> tokens = some_tokens(66, model.vocab_size);
  const std::vector<double> wanted = DenseReference(model, weights).forward(tokens);
  for (const char* backend : {"triton", "fa3", "flashinfer", "torch_native"}) {
    Cluster cluster(model, weights, 2, options_of(1, 80), backend);
    std::vector<std::uint32_t> table;
    for (std::uint32_t i = 0; i < tokens.size(); ++i) table.push_back(79 - i);
    std::uint32_t at = 0;
    for (const std::uint32_t count : {5U, 11U, 1U, 30U, 1U, 1U, 15U, 1U, 1U}) {
      const auto first = tokens.begin() + at;
      const std::vector<float> logits = cluster.extend({first, first + count}, at, table);
      at += count;
      EXPECT_LE(difference(logits, wanted, at - 1), 1e-4) << backend << ", token " << at;
    }
  }
}

// Chunks of 8 tokens: prefills and decodes within, at and across their borders, on pages that divide them.
TEST(NumericForward, DualChunkAttentionAgreesWithTheDenseReference) {
  for (const char* name : {"qwen2", "qwen3-moe"}) {
    ModelConfig model = load_model_config(folder_of(name));
    model.dual_chunk.chunk_size = 13;
    model.dual_chunk.local_size = 5;
    const Checkpoint weights(folder_of(name));
    const std::vector<std::uint32_t> tokens = some_tokens(40, model.vocab_size);
    const std::vector<double> wanted = DenseReference(model, weights).forward(tokens);
    for (const std::uint32_t tp : {1U, 4U}) {
      Cluster cluster(model, weights, tp, options_of(4, 20), "dual_chunk_flash_attn");
      const std::vector<std::uint32_t> table = {17, 3, 5, 4, 9, 0, 1, 12, 11, 2};
      std::uint32_t at = 0;
      for (const std::uint32_t chunk : {5U, 3U, 19U, 1U, 4U, 1U, 1U, 1U, 1U, 1U, 1U, 1U, 1U}) {
        const auto first = tokens.begin() + at;
        const std::vector<float> logits = cluster.extend({first, first + chunk}, at, table);
        at += chunk;
        EXPECT_LE(difference(logits, wanted, at - 1), 1e-4) << name << " at --tp " << tp << ", token " << at;
      }
    }
    // Beyond the trained length q.k grows; a prompt in one pass has one length.
    model.dual_chunk.original_max_position_embeddings = 16;
    Cluster cluster(model, weights, 1, options_of(4, 20), "dual_chunk_flash_attn");
    const std::vector<double> scaled = DenseReference(model, weights).forward(tokens);
    const std::vector<float> logits = cluster.extend(tokens, 0, {17, 3, 5, 4, 9, 0, 1, 12, 11, 2});
    EXPECT_LE(difference(logits, scaled, 39), 1e-4) << name;
    EXPECT_GT(difference(logits, wanted, 39), 1e-3) << name;
  }
}

TEST(NumericForward, WholeExpertsGiveTheSameAsPartsOfAll) {
  for (const char* name : {"mixtral", "deepseek-v2", "gpt-oss", "qwen3-moe", "glm4-moe"}) {
    const ModelConfig model = load_model_config(folder_of(name));
    const DequantisedSource weights{Checkpoint(folder_of(name))};
    const std::vector<std::uint32_t> tokens = some_tokens(24, model.vocab_size);
    const std::vector<double> wanted = DenseReference(model, weights).forward(tokens);
    for (const std::uint32_t tp : {2U, 8U}) {
      NumericOptions options = options_of(16, 4);
      options.layout.ep_size = tp;
      Cluster cluster(model, weights, tp, options);
      EXPECT_LE(difference(cluster.extend(tokens, 0, {2, 1}), wanted, 23), 1e-4) << name << " --ep " << tp;
    }
  }
}

// Three data-parallel ranks' worth of layouts, with an idle one among them: attention of its own on each,
// MLPs over all.
TEST(NumericForward, EveryLayoutGivesTheSame) {
  struct Case {
    const char* model;
    std::uint32_t tp;
    ParallelLayout layout;
  };
  const auto layout = [](std::uint32_t dp, std::uint32_t ep, bool dense_tp1 = false, bool head = false,
                         bool deepep = false) {
    ParallelLayout out;
    out.dp_size = dp;
    out.ep_size = ep;
    out.moe_dense_tp1 = dense_tp1;
    out.dp_lm_head = head;
    out.moe_a2a = deepep ? MoeA2aBackend::kDeepEp : MoeA2aBackend::kNone;
    return out;
  };
  const Case kCases[] = {
      {"deepseek-v2", 8, layout(8, 8)},
      {"deepseek-v2", 8, layout(4, 2, true)},
      {"deepseek-v3", 8, layout(8, 8, true, true, true)},
      {"deepseek-v3", 4, layout(2, 4, false, true, true)},
      {"deepseek-v3", 4, layout(1, 4, true, false, true)},
      {"qwen3-moe", 8, layout(2, 4)},
      {"qwen3-moe", 4, layout(4, 1, false, true)},
      {"gpt-oss", 4, layout(2, 2)},
      {"qwen3", 4, layout(2, 1)},
      {"mixtral", 8, layout(1, 4)},
  };
  for (const Case& test : kCases) {
    SCOPED_TRACE(std::string(test.model) + " --tp " + std::to_string(test.tp) + " --dp " +
                 std::to_string(test.layout.dp_size) + " --ep " + std::to_string(test.layout.ep_size));
    const ModelConfig model = load_model_config(folder_of(test.model));
    const Checkpoint weights(folder_of(test.model));
    NumericOptions options = options_of(4, 32);
    options.layout = test.layout;
    Cluster cluster(model, weights, test.tp, options);
    const std::uint32_t dp = test.layout.dp_size;
    // Rank d has d requests (the first is idle where there are others), in an extend pass and then a decode
    // one.
    std::vector<std::vector<std::uint32_t>> prompts;
    std::vector<std::uint32_t> owner;
    for (std::uint32_t d = dp == 1 ? 0 : 1; d < dp; ++d) {
      for (std::uint32_t i = 0; i < (d % 3) + 1; ++i) {
        std::vector<std::uint32_t> tokens = some_tokens(5 + 3 * d + i, model.vocab_size);
        tokens[0] = d + i;
        prompts.push_back(std::move(tokens));
        owner.push_back(d);
      }
    }
    for (const bool decodes : {false, true}) {
      const std::vector<std::vector<float>> logits = cluster.lockstep(prompts, owner, dp, decodes);
      ASSERT_EQ(logits.size(), prompts.size());
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        const std::vector<double> wanted = DenseReference(model, weights).forward(prompts[i]);
        EXPECT_LE(difference(logits[i], wanted, static_cast<std::uint32_t>(prompts[i].size()) - 1), 1e-4)
            << "request " << i << (decodes ? ", decode" : "");
      }
      for (auto& prompt : prompts) prompt.push_back(7);  // what decodes next
    }
  }
}

// A window layer that lets go of what slid out says the same, and holds no more than its window.
TEST(NumericForward, WindowLayersLetGoOfWhatSlidOut) {
  for (const char* name : {"mistral", "gemma3", "gpt-oss"}) {
    const ModelConfig model = load_model_config(folder_of(name));  // windows of 12 tokens
    const DequantisedSource weights{Checkpoint(folder_of(name))};
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
      cluster.forward().release_pages(0, table);
      EXPECT_EQ(cluster.forward().store(0).window_pages(), 0U);
    }
  }
}

TEST(NumericForward, SaysWhatIsMissingOrTooMuchBeforeLoading) {
  const ModelConfig model = load_model_config(folder_of("llama"));
  const Checkpoint other(folder_of("mixtral"));
  EXPECT_THROW(Cluster(model, other, 1, options_of(1, 8)), UserError);
  NumericOptions options = options_of(1, 8);
  options.layout.ep_size = 2;
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

// FlashInfer, for one, plans an fp8 cache for tensor cores where it would plan a wider one for the vector
// units.
TEST(NumericForward, PlansAreMadeForTheFormatOfTheCache) {
  const ModelConfig model = load_model_config(folder_of("llama"));
  const Checkpoint checkpoint(folder_of("llama"));
  for (const NumberFormat format : {NumberFormat::kFp32, NumberFormat::kFp8E4M3, NumberFormat::kFp4E2M1}) {
    NumericOptions options = options_of(1, 64);
    options.kv_format = format;
    std::set<NumberFormat> formats;
    LocalCollectives collectives(1);
    ThreadPool pool(1);
    NumericForward forward(model, load_ranks(model, checkpoint, options, collectives), options,
                           std::make_unique<Spy>(formats), collectives, pool);
    const std::vector<std::uint32_t> tokens = {5, 6, 7}, pages = {1, 2, 3};
    forward.forward(testing::OneRequest(tokens, 0, pages).batches());
    EXPECT_EQ(formats, std::set<NumberFormat>{format}) << to_string(format);
  }
}

}  // namespace
}  // namespace tpsim::rank::numeric_forward_test
