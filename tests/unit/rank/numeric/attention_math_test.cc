// The plans of every backend carried out, against attention written down in fp64: random ragged batches, GQA
// ratios, head sizes, windows, soft caps, sinks, custom masks, page sizes.
#include "attention/math/attention_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attention/selection/registry.h"
#include "tests/unit/attention/gpu.h"
#include "tests/unit/attention/listed_backends.h"
#include "tests/unit/rank/numeric/paged_pool.h"

namespace tpsim::attention {
namespace {

struct Case {
  LayerShape shape;
  std::uint32_t page_size = 1;
  float logit_cap = 0;
  bool sinks = false;
  bool masks = false;
  proto::ForwardMode mode = proto::DECODE;
  std::vector<std::uint32_t> prefixes, q_lens;  // per request; decodes have q_len 1
};

// One batch: its pool, its page tables in random order, its queries, and the true answer.
class Batch {
 public:
  Batch(const Case& of, std::mt19937_64& random)
      : case_(of),
        normal_(0, 1),
        pool_(tpsim::testing::lengths_of(of.prefixes, of.q_lens), of.shape, of.page_size, random,
              /*num_layers=*/2,
              /*spare=*/3) {
    const std::size_t k_width = std::size_t{of.shape.num_kv_heads} * of.shape.head_dim;
    const std::size_t v_width = std::size_t{of.shape.num_kv_heads} * of.shape.v_head_dim;
    std::uint32_t rows = 0;
    for (std::size_t i = 0; i < of.q_lens.size(); ++i) {
      const std::uint32_t length = of.prefixes[i] + of.q_lens[i];
      keys_.push_back(random_vector(random, length * k_width));
      values_.push_back(random_vector(random, length * v_width));
      for (std::uint32_t t = 0; t < length; ++t)
        pool_.store(1, i, t, keys_[i].data() + t * k_width, values_[i].data() + t * v_width);
      first_row_.push_back(rows);
      rows += of.q_lens[i];
      std::vector<std::uint8_t>& mask = masks_.emplace_back();
      if (of.masks) {
        mask.resize(std::size_t{of.q_lens[i]} * length);
        for (std::uint8_t& bit : mask) bit = random() % 3 != 0 ? 1 : 0;
      }
    }
    queries_ = random_vector(random, std::size_t{rows} * of.shape.num_q_heads * of.shape.head_dim);
    out_.resize(std::size_t{rows} * of.shape.num_q_heads * of.shape.v_head_dim);
    sinks_ = random_vector(random, of.shape.num_q_heads);
    for (const auto& mask : masks_) mask_views_.push_back(mask.empty() ? nullptr : mask.data());
  }

  void run(const std::string& backend_name, int turn = 0) {
    proto::HardwareProfile gpu = tpsim::testing::gpu();
    gpu.set_architecture(testing::device_of(backend_name, turn));
    auto backend = create_attention_backend(backend_name, gpu, case_.page_size);
    ForwardMetadata metadata;
    metadata.forward_mode = case_.mode;
    std::vector<std::uint32_t> lengths;
    if (case_.mode == proto::DECODE) {
      for (const std::uint32_t prefix : case_.prefixes) lengths.push_back(prefix + 1);
      metadata.decode_seq_lens = lengths;
    } else {
      metadata.extend_prefix_lens = case_.prefixes;
      metadata.extend_lens = case_.q_lens;
    }
    backend->init_forward_metadata(metadata);
    AttentionCall call;
    call.kernel = backend->kernel();
    call.store = &pool_.store();
    call.layer = 1;
    call.shape = case_.shape;
    call.scale = scale();
    call.logit_cap = case_.logit_cap;
    call.sinks = case_.sinks ? sinks_.data() : nullptr;
    call.page_tables = pool_.page_tables();
    call.first_row = first_row_;
    call.q = queries_.data();
    call.out = out_.data();
    if (case_.masks) call.masks = mask_views_;
    std::fill(out_.begin(), out_.end(), -1e30F);
    AttentionMath math;
    if (case_.mode == proto::DECODE) {
      math.decode(backend->decode_plan(case_.shape), call);
    } else {
      math.extend(backend->extend_plan(case_.shape), call);
    }
  }

  // Largest difference from the fp64 reference, relative to the largest element of the row.
  double error() const {
    double worst = 0;
    for (std::size_t i = 0; i < case_.q_lens.size(); ++i) {
      for (std::uint32_t t = 0; t < case_.q_lens[i]; ++t) {
        for (std::uint32_t h = 0; h < case_.shape.num_q_heads; ++h)
          worst = std::max(worst, error_of(i, t, h));
      }
    }
    return worst;
  }

 private:
  std::vector<float> random_vector(std::mt19937_64& random, std::size_t size) {
    std::vector<float> values(size);
    for (float& value : values) value = normal_(random);
    return values;
  }
  float scale() const { return 1.5F / std::sqrt(static_cast<float>(case_.shape.head_dim)); }

  bool sees(std::size_t request, std::uint32_t token, std::uint32_t k) const {
    const std::uint32_t position = case_.prefixes[request] + token;
    const std::uint32_t length = case_.prefixes[request] + case_.q_lens[request];
    if (case_.masks) return masks_[request][std::size_t{token} * length + k] != 0;
    const std::uint32_t window = case_.shape.sliding_window;
    return k <= position && (window == 0 || k + window > position);
  }

  double error_of(std::size_t request, std::uint32_t token, std::uint32_t head) const {
    const LayerShape& shape = case_.shape;
    const std::uint32_t kv_head = head / (shape.num_q_heads / shape.num_kv_heads);
    const std::uint32_t length = case_.prefixes[request] + case_.q_lens[request];
    const std::size_t row = std::size_t{first_row_[request]} + token;
    const float* q = queries_.data() + (row * shape.num_q_heads + head) * shape.head_dim;
    std::vector<double> scores(length, -INFINITY);
    double largest = case_.sinks ? sinks_[head] : -INFINITY;
    for (std::uint32_t k = 0; k < length; ++k) {
      if (!sees(request, token, k)) continue;
      const float* key =
          keys_[request].data() + (std::size_t{k} * shape.num_kv_heads + kv_head) * shape.head_dim;
      double score = 0;
      for (std::uint32_t d = 0; d < shape.head_dim; ++d) score += double{q[d]} * key[d];
      score *= scale();
      if (case_.logit_cap > 0) score = case_.logit_cap * std::tanh(score / case_.logit_cap);
      scores[k] = score;
      largest = std::max(largest, score);
    }
    std::vector<double> wanted(shape.v_head_dim, 0);
    double sum = case_.sinks ? std::exp(sinks_[head] - largest) : 0;
    for (std::uint32_t k = 0; k < length; ++k) {
      if (scores[k] == -INFINITY) continue;
      const double weight = std::exp(scores[k] - largest);
      sum += weight;
      const float* value =
          values_[request].data() + (std::size_t{k} * shape.num_kv_heads + kv_head) * shape.v_head_dim;
      for (std::uint32_t d = 0; d < shape.v_head_dim; ++d) wanted[d] += weight * value[d];
    }
    const float* out = out_.data() + (row * shape.num_q_heads + head) * shape.v_head_dim;
    double size = 1e-30;
    double difference = 0;
    for (std::uint32_t d = 0; d < shape.v_head_dim; ++d) {
      const double value = sum > 0 ? wanted[d] / sum : 0;
      size = std::max(size, std::fabs(value));
      difference = std::max(difference, std::fabs(value - out[d]));
    }
    return difference / size;
  }

  const Case case_;
  std::normal_distribution<float> normal_;
  tpsim::testing::PagedPool pool_;
  std::vector<std::uint32_t> first_row_;
  std::vector<std::vector<float>> keys_, values_;
  std::vector<float> queries_, out_, sinks_;
  std::vector<std::vector<std::uint8_t>> masks_;
  std::vector<const std::uint8_t*> mask_views_;
};

#ifdef __SANITIZE_ADDRESS__
constexpr int kRounds = 5;  // for each backend, each with batches of its own
#else
constexpr int kRounds = 20;
#endif

Case random_case(std::mt19937_64& random, bool decode) {
  Case of;
  constexpr std::uint32_t kDims[] = {64, 80, 96, 128, 192, 256};
  of.shape.num_kv_heads = 1U << random() % 3;
  of.shape.num_q_heads = of.shape.num_kv_heads * (1U << random() % 5);
  of.shape.head_dim = of.shape.v_head_dim = kDims[random() % std::size(kDims)];
  of.page_size = std::vector<std::uint32_t>{1, 16, 64}[random() % 3];
  if (random() % 3 == 0) of.logit_cap = 5;
  of.sinks = random() % 3 == 0;
  of.mode = decode ? proto::DECODE : proto::EXTEND;
  // Lengths from 1 to 4,096, of which long ones are few: the reference is slow.
  const auto length = [&](std::uint32_t most) {
    return static_cast<std::uint32_t>(1 + random() % (1 + random() % most));
  };
  const bool wide = of.shape.num_q_heads * of.shape.head_dim > 4096;  // slower still
  for (std::uint64_t i = 1 + random() % 4; i > 0; --i) {
    if (decode) {
      of.prefixes.push_back(length(random() % 8 == 0 ? 4095 : 700));
      of.q_lens.push_back(1);
    } else {
      of.prefixes.push_back(random() % 2 == 0 ? 0 : length(400));
      of.q_lens.push_back(length(wide ? 60 : random() % 8 == 0 ? 600 : 150));
    }
  }
  return of;
}

class AttentionPlans : public ::testing::TestWithParam<std::string> {
 protected:
  bool gathered() const { return testing::gathers(GetParam()); }

  // Every backend gets batches of its own.
  std::mt19937_64 random(std::uint64_t seed) const {
    return std::mt19937_64(seed + std::hash<std::string>{}(GetParam()));
  }

  void check_random_cases(std::uint64_t seed, int rounds, bool decode) const {
    std::mt19937_64 random = this->random(seed);
    for (int round = 0; round < rounds; ++round) {
      Case of = random_case(random, decode);
      if (!gathered() && random() % 3 == 0)
        of.shape.sliding_window = static_cast<std::uint32_t>(1 + random() % 300);
      Batch batch(of, random);
      batch.run(GetParam(), round);
      ASSERT_LE(batch.error(), 1e-5) << "round " << round << ", head_dim " << of.shape.head_dim << ", page "
                                     << of.page_size;
    }
  }
};

class AttentionDecodePlans : public AttentionPlans {};

TEST_P(AttentionDecodePlans, AgreesWithTheDefinition) {
  check_random_cases(11, 2 * kRounds, /*decode=*/true);
}

TEST_P(AttentionPlans, ExtendAgreesWithTheDefinition) { check_random_cases(12, kRounds, /*decode=*/false); }

TEST_P(AttentionPlans, ACustomMaskReplacesTheCausalOne) {
  std::mt19937_64 random = this->random(13);
  for (int round = 0; round < kRounds / 2; ++round) {
    Case of = random_case(random, /*decode=*/false);
    of.masks = true;
    Batch batch(of, random);
    batch.run(GetParam());
    ASSERT_LE(batch.error(), 1e-5) << "round " << round;
  }
}

TEST_P(AttentionDecodePlans, ALongSequenceIsSplitAndMerged) {
  std::mt19937_64 random(14);
  Case of;
  of.shape.num_kv_heads = 1;
  of.shape.num_q_heads = 16;
  of.shape.head_dim = of.shape.v_head_dim = 64;
  of.page_size = 16;
  of.prefixes = {4095, 3, 2000};
  of.q_lens = {1, 1, 1};
  Batch batch(of, random);
  batch.run(GetParam());
  EXPECT_LE(batch.error(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionPlans, ::testing::ValuesIn(testing::mha_backends()));
INSTANTIATE_TEST_SUITE_P(Backends, AttentionDecodePlans, ::testing::ValuesIn(testing::mha_backends(true)));

}  // namespace
}  // namespace tpsim::attention
