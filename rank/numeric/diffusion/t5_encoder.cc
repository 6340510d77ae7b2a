// The encoder of T5 and UMT5: attention without scale, whose scores a learnt bias of the keys' distance is
// added to, and gated MLPs. T5 learns one bias for all blocks, UMT5 one for each.
//
// Sources: arXiv 1910.10683 (section 2.1), 2002.05202 (the gate); names of tensors and rounding of distances
// as Transformers 5.24 has them (models/t5, models/umt5).
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "proto/base/error.h"
#include "rank/linear/vector_ops.h"
#include "rank/numeric/diffusion/denoiser_layers.h"
#include "rank/numeric/diffusion/text_encoder.h"

namespace tpsim::rank {
namespace {

struct T5Block {
  TowerNorm norm1, norm2;
  CutLinear q, k, v, out, gate, up, down;
  std::vector<float> bias;  // [buckets, heads]
};

class T5Encoder : public TextEncoder {
 public:
  T5Encoder(const ConfigReader& config, const TensorSource& source, bool bias_each, const Collectives& ranks)
      : width_(config.number("d_model")),
        dim_(config.number("d_kv")),
        heads_(config.number("num_heads")),
        vocabulary_(config.number("vocab_size")),
        buckets_(config.number_or("relative_attention_num_buckets", 32, 4)),
        farthest_(config.number_or("relative_attention_max_distance", 128, 1)) {
    if (config.text("feed_forward_proj", "relu") != "gated-gelu")
      throw_user_error("{}: key \"feed_forward_proj\" is \"{}\", which is not computed; \"gated-gelu\" is",
                       config.where(), config.text("feed_forward_proj", "relu"));
    if (buckets_ % 4 != 0 || farthest_ <= buckets_ / 4)
      throw_user_error(
          "{}: relative_attention_num_buckets {} must be a multiple of 4, and a quarter of it "
          "less than relative_attention_max_distance {}",
          config.where(), buckets_, farthest_);
    const auto eps = static_cast<float>(config.real("layer_norm_epsilon", 1e-6, 0, 1));
    const std::uint32_t ffn = config.number("d_ff"), inner = heads_ * dim_;
    refuse_uncut(ranks.tp_size(), heads_, "num_heads", config.where());
    refuse_uncut(ranks.tp_size(), ffn, "d_ff", config.where());
    const TowerReader reader(source, WeightType::kFp32, {""}, "shared.weight");
    const CutReader cut{reader, ranks.tp_size(), /*bias=*/false};
    embeddings_ = reader.tensor("shared.weight", {vocabulary_, width_});
    for (std::uint32_t i = 0; i < config.number("num_layers"); ++i) {
      const std::string at = "encoder.block." + std::to_string(i) + ".layer.";
      const std::string met = at + "0.SelfAttention.", mlp = at + "1.DenseReluDense.";
      blocks_.push_back({.norm1 = reader.norm(at + "0.layer_norm", width_, eps, /*rms=*/true),
                         .norm2 = reader.norm(at + "1.layer_norm", width_, eps, /*rms=*/true),
                         .q = cut.columns(met + "q", inner, width_),
                         .k = cut.columns(met + "k", inner, width_),
                         .v = cut.columns(met + "v", inner, width_),
                         .out = cut.rows(met + "o", width_, inner),
                         .gate = cut.columns(mlp + "wi_0", ffn, width_),
                         .up = cut.columns(mlp + "wi_1", ffn, width_),
                         .down = cut.rows(mlp + "wo", width_, ffn),
                         .bias = i == 0 || bias_each ? reader.tensor(met + "relative_attention_bias.weight",
                                                                     {buckets_, heads_})
                                                     : blocks_.front().bias});
    }
    norm_ = reader.norm("encoder.final_layer_norm", width_, eps, /*rms=*/true);
  }

  std::vector<float> rows(const PromptTokens& tokens, Collectives& ranks, ThreadPool& pool) const override {
    refuse_padding(tokens);
    const std::vector<std::uint32_t>& ids = tokens.ids;
    std::vector<float> x = embedded(ids, embeddings_, width_);
    const auto count = static_cast<std::uint32_t>(ids.size());
    std::vector<float> normed(x.size());
    for (const T5Block& block : blocks_) {
      block.norm1.apply(x.data(), count, normed.data(), pool);
      const auto add_sum = [&](const auto& part_of) {
        std::vector<std::vector<float>> parts;
        std::vector<const float*> views;
        for (std::uint32_t i = 0; i < ranks.num_ranks(); ++i)
          views.push_back(parts.emplace_back(part_of(ranks.first_rank() + i)).data());
        std::vector<float> sum(x.size());
        ranks.all_reduce(views, sum.size(), sum.data());
        add(x.data(), sum.data(), x.size());
      };
      add_sum([&](std::uint32_t rank) {
        return product(block.out.shards[rank], attend(block, rank, normed, pool), pool);
      });
      block.norm2.apply(x.data(), count, normed.data(), pool);
      add_sum([&](std::uint32_t rank) {
        std::vector<float> hidden = product(block.gate.shards[rank], normed, pool);
        activate(TowerActivation::kGeluTanh, hidden.data(), hidden.size());
        const std::vector<float> up = product(block.up.shards[rank], normed, pool);
        for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] *= up[i];
        return product(block.down.shards[rank], hidden, pool);
      });
    }
    norm_.apply(x.data(), count, x.data(), pool);
    return x;
  }

 private:
  // Half of the buckets are for keys behind the query. Of each half, half are for one distance each, the
  // others for ranges that grow, the last of them without end.
  std::uint32_t bucket(std::int32_t distance) const {
    const std::uint32_t half = buckets_ / 2, exact = half / 2;
    const std::uint32_t first = distance > 0 ? half : 0;
    const auto far = static_cast<std::uint32_t>(std::abs(distance));
    if (far < exact) return first + far;
    const float ratio = std::log(static_cast<float>(far) / static_cast<float>(exact)) /
                        static_cast<float>(std::log(static_cast<double>(farthest_) / exact));
    const auto more = static_cast<std::uint32_t>(ratio * static_cast<float>(half - exact));
    return first + std::min(exact + more, half - 1);
  }

  // Of the rank's heads.
  std::vector<float> attend(const T5Block& block, std::uint32_t rank, const std::vector<float>& x,
                            ThreadPool& pool) const {
    const TowerLinear &q = block.q.shards[rank], &k = block.k.shards[rank], &v = block.v.shards[rank];
    const std::uint32_t heads = q.weight.n() / dim_, first = rank * heads;
    const TokenAttention attention{
        .heads = heads, .dim = dim_, .bias = [&](std::uint32_t head, std::uint32_t a, std::uint32_t b) {
          const auto distance = static_cast<std::int32_t>(b) - static_cast<std::int32_t>(a);
          return block.bias[std::size_t{bucket(distance)} * heads_ + first + head];
        }};
    return attention(product(q, x, pool), product(k, x, pool), product(v, x, pool), pool);
  }

  const std::uint32_t width_, dim_, heads_, vocabulary_, buckets_, farthest_;
  std::vector<float> embeddings_;
  std::vector<T5Block> blocks_;
  TowerNorm norm_;
};

std::unique_ptr<TextEncoder> load_t5(const ConfigReader& config, const TensorSource& source,
                                     const std::string& /*pipeline*/, const Collectives& ranks) {
  return std::make_unique<T5Encoder>(config, source, /*bias_each=*/config.text("model_type", "") == "umt5",
                                     ranks);
}

}  // namespace

extern const TextEncoderFamily kT5Encoder;
const TextEncoderFamily kT5Encoder = {.model_types = {"t5", "umt5"}, .load = load_t5};

}  // namespace tpsim::rank
