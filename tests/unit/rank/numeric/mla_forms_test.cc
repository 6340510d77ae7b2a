// MLA computed in both forms: every backend's plan over random ragged batches against attention written down
// in fp64, and whole models against Transformers' numbers (through the dense reference, which agrees with
// them), for every form an extend can take, in every format of the cache and at native page sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/math/attention_math.h"
#include "attention/selection/registry.h"
#include "kvcache/storage/kv_store.h"
#include "rank/numeric/dense_reference.h"
#include "rank/numeric/numeric_forward.h"
#include "rank/weights/checkpoint.h"
#include "tests/unit/attention/gpu.h"
#include "tests/unit/rank/numeric/one_request.h"

namespace tpsim::rank {
namespace {

using attention::AttentionForm;
using attention::LayerShape;
using attention::MlaForwardMethod;
using attention::MlaOptions;

constexpr std::uint32_t kLatent = 24, kRope = 8, kNope = 12, kValue = 10;

std::vector<std::string> mla_backends(bool decode) {
  std::vector<std::string> names;
  for (const attention::BackendDescription* backend : attention::backend_list()) {
    if (backend->row.has_mla && !(decode && backend->row.prefill_only)) names.emplace_back(backend->row.name);
  }
  return names;
}

// A batch of sequences of latents, one layer's weights, and the true attention of every new token and head.
class Batch {
 public:
  Batch(std::mt19937_64& random, std::uint32_t heads, std::uint32_t page_size,
        std::vector<std::uint32_t> prefixes, std::vector<std::uint32_t> q_lens)
      : heads_(heads), page_size_(page_size), prefixes_(std::move(prefixes)), q_lens_(std::move(q_lens)) {
    std::uint32_t pages = 0;
    for (std::size_t i = 0; i < q_lens_.size(); ++i)
      pages += (prefixes_[i] + q_lens_[i] + page_size - 1) / page_size;
    std::vector<std::uint32_t> order(pages);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
    store_ = std::make_unique<kvcache::KvStore>(kvcache::KvStoreConfig{.format = NumberFormat::kFp32,
                                                                       .num_layers = 1,
                                                                       .num_pages = pages,
                                                                       .page_size = page_size,
                                                                       .num_kv_heads = 1,
                                                                       .k_dim = kLatent + kRope,
                                                                       .v_dim = kLatent,
                                                                       .value_in_key = true,
                                                                       .windowed = {},
                                                                       .tag_pages = true});
    up_k_ = random_vector(random, std::size_t{heads} * kNope * kLatent, 0.3);
    up_v_ = random_vector(random, std::size_t{heads} * kValue * kLatent, 0.3);
    std::uint32_t rows = 0;
    std::uint32_t kv_rows = 0;
    for (std::size_t i = 0; i < q_lens_.size(); ++i) {
      const std::uint32_t length = prefixes_[i] + q_lens_[i];
      std::vector<std::uint32_t>& table = tables_.emplace_back();
      for (std::uint32_t page = 0; page * page_size < length; ++page) {
        table.push_back(order.back());
        order.pop_back();
      }
      first_row_.push_back(rows);
      first_kv_row_.push_back(kv_rows);
      rows += q_lens_[i];
      kv_rows += length;
    }
    for (const auto& table : tables_) views_.emplace_back(table);
    latents_ = random_vector(random, std::size_t{kv_rows} * (kLatent + kRope), 1);
    queries_ = random_vector(random, std::size_t{rows} * heads * (kNope + kRope), 1);
    for (std::size_t i = 0; i < q_lens_.size(); ++i) {
      for (std::uint32_t t = 0; t < prefixes_[i] + q_lens_[i]; ++t)
        store_->store(0, tables_[i][t / page_size] * page_size + t % page_size, latent(i, t), nullptr);
    }
    expand();
    compute_truth();
  }

  // The largest difference from the truth of what the backend computes in the given form.
  double error(const std::string& name, bool decode, AttentionForm form, const MlaOptions& options) {
    auto backend = attention::create_attention_backend(name, testing::gpu(), page_size_);
    backend->set_mla_options(options);
    attention::ForwardMetadata metadata;
    metadata.forward_mode = decode ? proto::DECODE : proto::EXTEND;
    std::vector<std::uint32_t> lengths;
    for (const std::uint32_t prefix : prefixes_) lengths.push_back(prefix + 1);
    if (decode) {
      metadata.decode_seq_lens = lengths;
    } else {
      metadata.extend_prefix_lens = prefixes_;
      metadata.extend_lens = q_lens_;
    }
    backend->init_forward_metadata(metadata);
    const bool expanded = form == AttentionForm::kMlaExpanded;
    attention::AttentionCall call;
    call.kernel = backend->kernel();
    call.store = store_.get();
    call.shape.form = form;
    call.shape.num_q_heads = heads_;
    call.shape.num_kv_heads = expanded ? heads_ : 1;
    call.shape.head_dim = expanded ? kNope + kRope : kLatent + kRope;
    call.shape.v_head_dim = expanded ? kValue : kLatent;
    call.scale = static_cast<float>(kScale);
    call.page_tables = views_;
    call.first_row = first_row_;
    const std::vector<float> absorbed = expanded ? std::vector<float>() : absorbed_queries();
    call.q = expanded ? queries_.data() : absorbed.data();
    const attention::DenseKv dense = {.first_row = first_kv_row_,
                                      .heads = expanded_.data(),
                                      .own = kNope,
                                      .shared = latents_.data() + kLatent,
                                      .stride = kLatent + kRope};
    if (expanded) call.dense = &dense;
    const std::size_t rows = first_row_.back() + q_lens_.back();
    std::vector<float> out(rows * heads_ * call.shape.v_head_dim);
    call.out = out.data();
    if (decode) {
      attention::AttentionMath().decode(backend->decode_plan(call.shape), call);
    } else {
      attention::AttentionMath().extend(backend->extend_plan(call.shape), call);
    }
    if (!expanded) out = values_of(out, rows);
    double worst = 0;
    for (std::size_t i = 0; i < truth_.size(); ++i) worst = std::max(worst, std::fabs(truth_[i] - out[i]));
    return worst;
  }

 private:
  static constexpr double kScale = 0.25;

  static std::vector<float> random_vector(std::mt19937_64& random, std::size_t size, double deviation) {
    std::normal_distribution<double> normal(0, deviation);
    std::vector<float> out(size);
    for (float& value : out) value = static_cast<float>(normal(random));
    return out;
  }
  const float* latent(std::size_t request, std::uint32_t token) const {
    return latents_.data() + (std::size_t{first_kv_row_[request]} + token) * (kLatent + kRope);
  }
  // Row `row` of head `head` of `weights`, which has `each` rows a head, times the latent.
  static double product(const std::vector<float>& weights, std::uint32_t each, std::uint32_t head,
                        std::uint32_t row, const float* latent) {
    const float* const w = weights.data() + (std::size_t{head} * each + row) * kLatent;
    double sum = 0;
    for (std::uint32_t d = 0; d < kLatent; ++d) sum += double(w[d]) * latent[d];
    return sum;
  }

  void expand() {
    const std::size_t rows = latents_.size() / (kLatent + kRope);
    expanded_.resize(rows * heads_ * (kNope + kValue));
    float* out = expanded_.data();
    for (std::size_t row = 0; row < rows; ++row) {
      const float* const c = latents_.data() + row * (kLatent + kRope);
      for (std::uint32_t h = 0; h < heads_; ++h) {
        for (std::uint32_t i = 0; i < kNope; ++i) *out++ = static_cast<float>(product(up_k_, kNope, h, i, c));
        for (std::uint32_t i = 0; i < kValue; ++i)
          *out++ = static_cast<float>(product(up_v_, kValue, h, i, c));
      }
    }
  }
  std::vector<float> absorbed_queries() const {
    const std::size_t rows = queries_.size() / (kNope + kRope);
    std::vector<float> out(rows * (kLatent + kRope));
    for (std::size_t row = 0; row < rows; ++row) {
      const float* const q = queries_.data() + row * (kNope + kRope);
      const std::size_t head = row % heads_;
      float* const to = out.data() + row * (kLatent + kRope);
      for (std::uint32_t d = 0; d < kLatent; ++d) {
        double sum = 0;
        for (std::uint32_t i = 0; i < kNope; ++i)
          sum += double(q[i]) * up_k_[(head * kNope + i) * kLatent + d];
        to[d] = static_cast<float>(sum);
      }
      std::copy(q + kNope, q + kNope + kRope, to + kLatent);
    }
    return out;
  }
  std::vector<float> values_of(const std::vector<float>& latents, std::size_t rows) const {
    std::vector<float> out(rows * heads_ * kValue);
    for (std::size_t row = 0; row < rows * heads_; ++row) {
      for (std::uint32_t i = 0; i < kValue; ++i)
        out[row * kValue + i] = static_cast<float>(product(
            up_v_, kValue, static_cast<std::uint32_t>(row % heads_), i, latents.data() + row * kLatent));
    }
    return out;
  }
  void compute_truth() {
    for (std::size_t i = 0; i < q_lens_.size(); ++i) {
      for (std::uint32_t t = 0; t < q_lens_[i]; ++t) {
        for (std::uint32_t h = 0; h < heads_; ++h) {
          const float* const q =
              queries_.data() + ((std::size_t{first_row_[i]} + t) * heads_ + h) * (kNope + kRope);
          std::vector<double> scores;
          for (std::uint32_t j = 0; j <= prefixes_[i] + t; ++j) {
            const float* const c = latent(i, j);
            double score = 0;
            for (std::uint32_t d = 0; d < kNope; ++d) score += q[d] * product(up_k_, kNope, h, d, c);
            for (std::uint32_t d = 0; d < kRope; ++d) score += double(q[kNope + d]) * c[kLatent + d];
            scores.push_back(kScale * score);
          }
          const double largest = *std::max_element(scores.begin(), scores.end());
          double sum = 0;
          for (double& score : scores) sum += score = std::exp(score - largest);
          for (std::uint32_t d = 0; d < kValue; ++d) {
            double value = 0;
            for (std::uint32_t j = 0; j < scores.size(); ++j)
              value += scores[j] * product(up_v_, kValue, h, d, latent(i, j));
            truth_.push_back(value / sum);
          }
        }
      }
    }
  }

  std::uint32_t heads_, page_size_;
  std::vector<std::uint32_t> prefixes_, q_lens_;
  std::unique_ptr<kvcache::KvStore> store_;
  std::vector<std::vector<std::uint32_t>> tables_;
  std::vector<std::span<const std::uint32_t>> views_;
  std::vector<std::uint32_t> first_row_, first_kv_row_;
  std::vector<float> up_k_, up_v_, latents_, queries_, expanded_;
  std::vector<double> truth_;
};

TEST(MlaForms, DecodeIsTheTruthByEveryBackend) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 6; ++round) {
    std::vector<std::uint32_t> prefixes;
    for (std::uint64_t i = 1 + random() % 5; i > 0; --i)
      prefixes.push_back(static_cast<std::uint32_t>(random() % (random() % 2 == 0 ? 3 : 700)));
    const std::uint32_t page_size = std::vector<std::uint32_t>{1, 32, 64, 128}[random() % 4];
    Batch batch(random, 1U << random() % 4, page_size, prefixes,
                std::vector<std::uint32_t>(prefixes.size(), 1));
    for (const std::string& backend : mla_backends(true))
      EXPECT_LE(batch.error(backend, true, AttentionForm::kMlaAbsorbed, {}), 1e-5) << backend;
  }
}

TEST(MlaForms, ExtendIsTheTruthInBothFormsAndAtEveryChunkBorder) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::uint32_t> prefixes, q_lens;
    for (std::uint64_t i = 1 + random() % 4; i > 0; --i) {
      prefixes.push_back(static_cast<std::uint32_t>(random() % 3 == 0 ? 0 : random() % 260));
      q_lens.push_back(static_cast<std::uint32_t>(1 + random() % (random() % 2 == 0 ? 4 : 90)));
    }
    const auto requests = static_cast<std::uint32_t>(prefixes.size());
    const std::uint32_t page_size = std::vector<std::uint32_t>{1, 32, 64, 128}[random() % 4];
    Batch batch(random, 1U << random() % 3, page_size, prefixes, q_lens);
    const std::uint32_t longest = *std::max_element(prefixes.begin(), prefixes.end());
    for (const std::string& backend : mla_backends(false)) {
      EXPECT_LE(batch.error(backend, false, AttentionForm::kMlaAbsorbed, {}), 1e-5) << backend;
      // One shot, and chunks that end within a prefix, with one, and behind all.
      for (const std::uint32_t chunk : {100000U, 1U + longest / 7, std::max(1U, longest), longest + 1, 64U}) {
        const MlaOptions options = {.chunked_prefix_cache_threshold = 0,
                                    .max_kv_chunk_capacity = chunk * requests};
        EXPECT_LE(batch.error(backend, false, AttentionForm::kMlaExpanded, options), 1e-5)
            << backend << " " << chunk;
      }
    }
  }
}

// A model whose sequences run through one backend.
class Model {
 public:
  Model(const std::string& name, const std::string& backend, std::uint32_t tp, std::uint32_t page_size,
        const MlaOptions& mla, NumberFormat format = NumberFormat::kFp32)
      : model_(load_model_config(std::string(TPSIM_MODELS) + "/" + name)),
        weights_(std::string(TPSIM_MODELS) + "/" + name),
        collectives_(tp),
        pool_(2) {
    NumericOptions options;
    options.page_size = page_size;
    options.num_pages = 1 + 64 / page_size;
    options.kv_format = format;
    options.tag_pages = true;
    auto made = attention::create_attention_backend(backend, testing::gpu(), page_size);
    made->set_mla_options(mla);
    backend_ = made.get();
    forward_ = std::make_unique<NumericForward>(model_, load_ranks(model_, weights_, options, collectives_),
                                                options, std::move(made), collectives_, pool_);
    for (std::uint32_t page = options.num_pages; page > 0; --page) table_.push_back(page - 1);
  }

  const ModelConfig& config() const { return model_; }
  const Checkpoint& weights() const { return weights_; }
  // Of the last extend.
  MlaForwardMethod method() const { return method_; }

  std::vector<float> extend(std::span<const std::uint32_t> tokens, std::uint32_t prefix) {
    const testing::OneRequest request(tokens, prefix, table_);
    const std::span<const float> logits = forward_->forward(request.batches());
    method_ = backend_->mla_extend().method;  // while the batch is there
    return {logits.begin(), logits.end()};
  }

 private:
  const ModelConfig model_;
  const Checkpoint weights_;
  LocalCollectives collectives_;
  ThreadPool pool_{2};
  attention::AttentionBackend* backend_;
  MlaForwardMethod method_ = MlaForwardMethod::kAbsorbed;
  std::unique_ptr<NumericForward> forward_;
  std::vector<std::uint32_t> table_;
};

std::vector<std::uint32_t> some_tokens(std::uint32_t count, std::uint32_t vocab) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back((i * 37 + 11) % vocab);
  return tokens;
}

// Largest difference over the largest logit.
template <typename Wanted>
double difference(const std::vector<float>& mine, const Wanted* wanted) {
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    largest = std::max(largest, std::fabs(double(wanted[i])));
    worst = std::max(worst, std::fabs(double(wanted[i]) - mine[i]));
  }
  return worst / largest;
}

struct Form {
  MlaOptions options;
  MlaForwardMethod method;  // of an extend behind a prefix, by fa3's rule
};
std::vector<Form> forms() {
  return {
      {{.chunked_prefix_cache = false}, MlaForwardMethod::kAbsorbed},
      {{.chunked_prefix_cache_threshold = 1}, MlaForwardMethod::kMhaOneShot},
      {{.chunked_prefix_cache_threshold = 1, .max_kv_chunk_capacity = 7}, MlaForwardMethod::kMhaChunkedKv}};
}

TEST(MlaForms, WholeModelsAgreeWithTransformersInEveryForm) {
  for (const char* name : {"deepseek-v2", "deepseek-v3"}) {
    std::vector<double> wanted;
    for (const Form& form : forms()) {
      for (const std::uint32_t tp : {1U, 4U}) {
        Model model(name, "fa3", tp, 32, form.options);
        const std::vector<std::uint32_t> tokens = some_tokens(45, model.config().vocab_size);
        if (wanted.empty()) wanted = DenseReference(model.config(), model.weights()).forward(tokens);
        std::uint32_t at = 0;
        for (const std::uint32_t count : {20U, 13U, 12U}) {
          const std::vector<float> logits = model.extend(std::span(tokens).subspan(at, count), at);
          EXPECT_EQ(model.method(), at == 0 ? MlaForwardMethod::kMha : form.method) << name;
          at += count;
          EXPECT_LE(difference(logits, wanted.data() + std::size_t{at - 1} * logits.size()), 1e-4)
              << name << " " << at;
        }
      }
    }
  }
}

// Absorbed and one-shot read the same rounded latents and agree; a chunked prefix attends to its new tokens
// as they came out of the projections, and so lies nearer to the truth.
TEST(MlaForms, FormatsOfTheCacheRoundWhatEachFormReadsFromIt) {
  for (const NumberFormat format : {NumberFormat::kFp8E4M3, NumberFormat::kFp8E5M2, NumberFormat::kFp4E2M1}) {
    for (const std::uint32_t page_size : {32U, 64U, 128U}) {
      std::vector<std::vector<float>> logits;
      std::vector<double> wanted;
      for (const Form& form : forms()) {
        Model model("deepseek-v3", "flashmla", 2, page_size, form.options, format);
        const std::vector<std::uint32_t> tokens = some_tokens(40, model.config().vocab_size);
        if (wanted.empty()) wanted = DenseReference(model.config(), model.weights()).forward(tokens);
        model.extend(std::span(tokens).subspan(0, 24), 0);
        logits.push_back(model.extend(std::span(tokens).subspan(24), 24));
      }
      const double* const truth = wanted.data() + 39 * logits[0].size();
      EXPECT_LE(difference(logits[1], logits[0].data()), 1e-4);
      EXPECT_GT(difference(logits[2], logits[0].data()), 1e-4);
      for (const std::vector<float>& of : logits) {
        EXPECT_GT(difference(of, truth), 1e-4);
        EXPECT_LT(difference(of, truth), 1);  // of a tiny model whose router may choose another expert
      }
    }
  }
}

}  // namespace
}  // namespace tpsim::rank
