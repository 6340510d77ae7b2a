#include "rank/numeric/diffusion/text_encoder.h"

#include <algorithm>
#include <cstddef>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/linear/vector_ops.h"

namespace tpsim::rank {

extern const TextEncoderFamily kClipEncoder, kLanguageEncoder, kT5Encoder;

std::unique_ptr<TextEncoder> load_text_encoder(const ConfigReader& config, const TensorSource& source,
                                               const std::string& pipeline, const Collectives& ranks) {
  const std::string type = config.text("model_type", "");
  std::vector<std::string_view> types;
  for (const TextEncoderFamily* const family : {&kT5Encoder, &kClipEncoder, &kLanguageEncoder}) {
    if (std::ranges::find(family->model_types, type) != family->model_types.end())
      return family->load(config, source, pipeline, ranks);
    types.insert(types.end(), family->model_types.begin(), family->model_types.end());
  }
  throw_user_error("{}: key \"model_type\" is {}, which is not computed; computed are {}", config.where(),
                   type.empty() ? "missing" : type, join_or(types));
}

void refuse_padding(const PromptTokens& tokens) {
  if (tokens.padding > 0)
    throw_user_error("{} tokens of padding: that it is not attended to is computed of language models alone",
                     tokens.padding);
}

std::vector<float> embedded(std::span<const std::uint32_t> ids, const std::vector<float>& table,
                            std::uint32_t width) {
  std::vector<float> x;
  for (const std::uint32_t id : ids) {
    if (id >= table.size() / width)
      throw_user_error("token {}: the vocabulary has {}", id, table.size() / width);
    const auto row = table.begin() + static_cast<std::ptrdiff_t>(id) * width;
    x.insert(x.end(), row, row + width);
  }
  return x;
}

std::vector<float> TokenAttention::operator()(const std::vector<float>& q, const std::vector<float>& k,
                                              const std::vector<float>& v, ThreadPool& pool) const {
  const std::size_t inner = std::size_t{heads} * dim;
  const auto count = static_cast<std::uint32_t>(q.size() / inner);
  std::vector<float> out(q.size());
  pool.parallel_for(heads, [&](std::uint32_t head, std::uint32_t) {
    std::vector<float> p(count);
    for (std::uint32_t a = 0; a < count; ++a) {
      const std::uint32_t keys = causal ? a + 1 : count;
      for (std::uint32_t b = 0; b < keys; ++b) {
        p[b] = scale * dot(q.data() + a * inner + head * dim, k.data() + b * inner + head * dim, dim);
        if (bias) p[b] += bias(head, a, b);
      }
      softmax(p.data(), keys);
      float* const to = out.data() + a * inner + head * dim;
      for (std::uint32_t b = 0; b < keys; ++b) {
        for (std::uint32_t i = 0; i < dim; ++i) to[i] += p[b] * v[b * inner + head * dim + i];
      }
    }
  });
  return out;
}

}  // namespace tpsim::rank
