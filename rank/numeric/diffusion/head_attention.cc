#include "rank/numeric/diffusion/head_attention.h"

#include <algorithm>
#include <cmath>

#include "attention/math/small_product.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rank/linear/vector_ops.h"

namespace tpsim::rank {

using attention::SoftmaxPart;

namespace {

constexpr HeadBackend kFa = {.name = "fa"};
constexpr HeadBackend kTorchSdpa = {.name = "torch_sdpa"};

}  // namespace

extern const HeadBackend kSageHead, kSlaHead, kVideoSparseHead, kVmobaHead;

std::span<const HeadBackend* const> head_backends() {
  static const HeadBackend* const list[] = {&kFa,      &kTorchSdpa,       &kSageHead,
                                            &kSlaHead, &kVideoSparseHead, &kVmobaHead};
  return list;
}

const HeadBackend& find_head_backend(std::string_view flag, std::string_view name) {
  std::vector<std::string_view> names;
  for (const HeadBackend* const backend : head_backends()) {
    if (backend->name == name) return *backend;
    names.push_back(backend->name);
  }
  throw_user_error("{} {}: is priced and not computed yet; computed are {}", flag, name, join_or(names));
}

void HeadBackend::attend(const HeadCall& call, const attention::DiffusionParameters& parameters, float* out,
                         KeptPairs& pairs) const {
  if (rounded != nullptr) {
    rounded(call, out);
    pairs.keep(std::uint64_t{call.q.count} * call.k.count);
    return;
  }
  std::vector<std::uint8_t> keeps;
  if (select != nullptr) {
    keeps = select(call, parameters);
    pairs.all += keeps.size();
    for (const std::uint8_t keep : keeps) pairs.kept += keep;
  } else {
    pairs.keep(std::uint64_t{call.q.count} * call.k.count);
  }
  SoftmaxPart part;
  dense_part(call, keeps, part);
  divide(part, out);
}

void dense_part(const HeadCall& call, std::span<const std::uint8_t> keeps, SoftmaxPart& part) {
  const std::uint32_t rows = call.q.count, keys = call.k.count, dim = call.dim;
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<float> scores(std::size_t{rows} * keys);
  for (std::uint32_t r = 0; r < rows; ++r) {
    float* const row = scores.data() + std::size_t{r} * keys;
    for (std::uint32_t k = 0; k < keys; ++k) {
      const bool seen = keeps.empty() || keeps[std::size_t{r} * keys + k] != 0;
      row[k] = seen ? scale * dot(call.q.row(r), call.k.row(k), dim) : SoftmaxPart::kNone;
    }
  }
  std::vector<float> values(std::size_t{keys} * dim + attention::kProductSlack);
  for (std::uint32_t k = 0; k < keys; ++k)
    std::copy_n(call.v.row(k), dim, values.begin() + static_cast<std::ptrdiff_t>(k) * dim);
  part.clear(rows, dim);
  part.add(scores.data(), keys, values.data(), dim);
}

std::vector<float> dense_heads(const std::vector<float>& q, const std::vector<float>& k,
                               const std::vector<float>& v, std::uint32_t heads, std::uint32_t dim,
                               ThreadPool& pool) {
  const std::size_t width = std::size_t{heads} * dim;
  const auto rows = static_cast<std::uint32_t>(q.size() / width);
  const auto keys = static_cast<std::uint32_t>(k.size() / width);
  std::vector<float> out(q.size());
  pool.parallel_for(heads, [&](std::uint32_t head, std::uint32_t) {
    const std::size_t at = std::size_t{head} * dim;
    SoftmaxPart part;
    dense_part({.q = {q.data() + at, rows, width},
                .k = {k.data() + at, keys, width},
                .v = {v.data() + at, keys, width},
                .dim = dim},
               {}, part);
    std::vector<float> result(std::size_t{rows} * dim);
    divide(part, result.data());
    for (std::uint32_t r = 0; r < rows; ++r)
      std::copy_n(result.data() + std::size_t{r} * dim, dim, out.data() + r * width + at);
  });
  return out;
}

void divide(const SoftmaxPart& part, float* out) {
  for (std::size_t r = 0; r < part.sum.size(); ++r) {
    for (std::size_t i = 0; i < part.v_dim; ++i)
      out[r * part.v_dim + i] = part.values[r * part.v_dim + i] / part.sum[r];
  }
}

}  // namespace tpsim::rank
