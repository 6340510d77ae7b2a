#include "attention/math/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/math/small_product.h"
#include "proto/base/lanes.h"
#include "proto/base/number_format.h"

namespace tpsim::attention {
namespace {

using lanes::Vector;

std::uint32_t slot_of(std::span<const std::uint32_t> table, std::uint32_t page_size, std::uint32_t position) {
  return table[position / page_size] * page_size + position % page_size;
}

constexpr std::uint32_t kScaled = 128;  // elements that share a scale
constexpr float kLargestE4m3 = 448;

template <typename ScaleOf>
void round_tiles(float* x, std::uint32_t size, ScaleOf scale_of) {
  for (std::uint32_t first = 0; first < size; first += kScaled) {
    const std::uint32_t last = std::min(first + kScaled, size);
    float largest = 0;
    for (std::uint32_t i = first; i < last; ++i) largest = std::max(largest, std::fabs(x[i]));
    if (largest == 0) continue;
    const float scale = scale_of(largest);
    for (std::uint32_t i = first; i < last; ++i) x[i] = from_e4m3(to_e4m3(x[i] / scale)) * scale;
  }
}

}  // namespace

void round_scaled_latent(float* token, std::uint32_t latent, std::uint32_t rope) {
  round_tiles(token, latent, [](float largest) { return largest / kLargestE4m3; });
  for (std::uint32_t i = latent; i < latent + rope; ++i) token[i] = from_bf16(to_bf16(token[i]));
}

void round_index_key(float* key, std::uint32_t dim) {
  round_tiles(key, dim,
              [](float largest) { return std::exp2(std::ceil(std::log2(largest / kLargestE4m3))); });
}

void IndexMath::select(const IndexCall& call, std::uint32_t request, std::uint32_t row,
                       std::uint32_t position, std::vector<std::uint32_t>& selected) {
  const std::uint32_t tokens = position + 1;
  selected.resize(tokens);
  std::iota(selected.begin(), selected.end(), 0U);
  if (tokens <= call.top_k) return;
  const std::uint32_t page_size = call.keys->config().page_size;
  const float* const queries = call.q + std::size_t{row} * call.heads * call.head_dim;
  const float* const weights = call.weights + std::size_t{row} * call.heads;
  scores_.resize(tokens);
  keys_.resize(std::size_t{page_size} * call.head_dim);
  for (std::uint32_t at = 0; at < tokens; at += page_size) {
    const std::uint32_t count = std::min(page_size, tokens - at);
    call.keys->load_keys(call.layer, slot_of(call.page_tables[request], page_size, at), count, 0,
                         keys_.data());
    for (std::uint32_t j = 0; j < count; ++j) {
      float score = 0;
      for (std::uint32_t h = 0; h < call.heads; ++h) {
        const float product = lanes::dot(queries + std::size_t{h} * call.head_dim,
                                         keys_.data() + std::size_t{j} * call.head_dim, call.head_dim);
        score += weights[h] * std::max(product, 0.0F);
      }
      scores_[at + j] = std::isnan(score) ? SoftmaxPart::kNone : score;
    }
  }
  const auto better = [&](std::uint32_t a, std::uint32_t b) {
    return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
  };
  std::nth_element(selected.begin(), selected.begin() + call.top_k, selected.end(), better);
  selected.resize(call.top_k);
  std::sort(selected.begin(), selected.end());
}

void BlockSparseMath::select(const IndexCall& index, const BlockCall& blocks, std::uint32_t request,
                             std::uint32_t row, std::uint32_t position, std::uint32_t head,
                             std::vector<std::uint32_t>& selected) {
  const std::uint32_t tokens = position + 1;
  const std::uint32_t most = index.top_k / blocks.block;
  const std::uint32_t count = (tokens + blocks.block - 1) / blocks.block;
  selected.clear();
  std::vector<std::uint32_t> chosen(count);
  std::iota(chosen.begin(), chosen.end(), 0U);
  if (count > most) {
    const std::uint32_t page_size = index.keys->config().page_size;
    const float* const query = index.q + (std::size_t{row} * index.heads + head) * index.head_dim;
    scores_.assign(count, SoftmaxPart::kNone);
    keys_.resize(std::size_t{page_size} * index.head_dim);
    for (std::uint32_t at = 0; at < tokens; at += page_size) {
      const std::uint32_t some = std::min(page_size, tokens - at);
      index.keys->load_keys(index.layer, slot_of(index.page_tables[request], page_size, at), some, 0,
                            keys_.data());
      for (std::uint32_t j = 0; j < some; ++j) {
        float& best = scores_[(at + j) / blocks.block];
        best =
            std::max(best, lanes::dot(query, keys_.data() + std::size_t{j} * index.head_dim, index.head_dim));
      }
    }
    for (std::uint32_t i = 0; i < std::min(blocks.local_blocks, count); ++i)
      scores_[count - 1 - i] = std::numeric_limits<float>::infinity();
    const auto better = [&](std::uint32_t a, std::uint32_t b) {
      return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
    };
    std::nth_element(chosen.begin(), chosen.begin() + most, chosen.end(), better);
    chosen.resize(most);
    std::sort(chosen.begin(), chosen.end());
  }
  for (const std::uint32_t block : chosen) {
    for (std::uint32_t at = block * blocks.block; at < std::min((block + 1) * blocks.block, tokens); ++at)
      selected.push_back(at);
  }
}

void BlockSparseMath::attend(const AttentionCall& call, std::uint32_t step, std::uint32_t request,
                             std::uint32_t row, std::uint32_t kv_head,
                             std::span<const std::uint32_t> selected) {
  const std::uint32_t dim = call.shape.head_dim;
  const std::uint32_t v_dim = call.shape.v_head_dim;
  const std::uint32_t group = call.shape.num_q_heads / call.shape.num_kv_heads;
  const std::uint32_t page_size = call.store->config().page_size;
  const std::size_t first = std::size_t{row} * call.shape.num_q_heads + std::size_t{kv_head} * group;
  queries_.assign(call.q + first * dim, call.q + (first + group) * dim);
  for (float& value : queries_) value *= call.scale;
  part_.clear(group, v_dim);
  keys_.resize(std::size_t{step} * dim);
  values_.resize(std::size_t{step} * v_dim + kProductSlack);
  for (std::size_t begin = 0; begin < selected.size(); begin += step) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(step, selected.size() - begin));
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t slot = slot_of(call.page_tables[request], page_size, selected[begin + i]);
      call.store->load_keys(call.layer, slot, 1, kv_head, keys_.data() + std::size_t{i} * dim);
      call.store->load_values(call.layer, slot, 1, kv_head, values_.data() + std::size_t{i} * v_dim);
    }
    scores_.resize(std::size_t{group} * count);
    for (std::uint32_t h = 0; h < group; ++h) {
      for (std::uint32_t j = 0; j < count; ++j)
        scores_[std::size_t{h} * count + j] =
            lanes::dot(queries_.data() + std::size_t{h} * dim, keys_.data() + std::size_t{j} * dim, dim);
    }
    part_.add(scores_.data(), count, values_.data(), v_dim);
  }
  for (std::uint32_t h = 0; h < group; ++h) {
    const float share = 1 / part_.sum[h];
    lanes::map(
        call.out + (first + h) * v_dim, v_dim, [=](Vector v) { return v * share; },
        part_.values.data() + std::size_t{h} * v_dim);
  }
}

// keys_ of the listed tokens; neighbours in a page are read together.
void SparseMath::load(const AttentionCall& call, std::uint32_t request,
                      std::span<const std::uint32_t> selected) {
  const std::uint32_t page_size = call.store->config().page_size;
  const std::uint32_t dim = call.shape.head_dim;
  keys_.resize(selected.size() * dim + kProductSlack);
  for (std::size_t i = 0; i < selected.size();) {
    std::uint32_t run = 1;
    while (i + run < selected.size() && selected[i + run] == selected[i] + run &&
           selected[i + run] % page_size != 0)
      ++run;
    call.store->load_keys(call.layer, slot_of(call.page_tables[request], page_size, selected[i]), run, 0,
                          keys_.data() + i * dim);
    i += run;
  }
}

// The loaded tokens' share of the softmax; the value of a token is the front of its key.
void SparseMath::step(const AttentionCall& call, std::uint32_t count) {
  const std::uint32_t dim = call.shape.head_dim;
  const std::uint32_t heads = call.shape.num_q_heads;
  scores_.resize(std::size_t{heads} * count);
  for (std::uint32_t h = 0; h < heads; ++h) {
    float* const row = scores_.data() + std::size_t{h} * count;
    for (std::uint32_t j = 0; j < count; ++j)
      row[j] = lanes::dot(queries_.data() + std::size_t{h} * dim, keys_.data() + std::size_t{j} * dim, dim);
  }
  part_.add(scores_.data(), count, keys_.data(), dim);
}

void SparseMath::attend(const SparsePlan& plan, const AttentionCall& call, std::uint32_t request,
                        std::uint32_t row, std::span<const std::uint32_t> selected) {
  const std::uint32_t dim = call.shape.head_dim;
  const std::uint32_t v_dim = call.shape.v_head_dim;
  const std::uint32_t heads = call.shape.num_q_heads;
  const float* const q = call.q + std::size_t{row} * heads * dim;
  queries_.resize(std::size_t{heads} * dim);
  for (std::size_t i = 0; i < queries_.size(); ++i) queries_[i] = q[i] * call.scale;
  total_.clear(heads, v_dim);
  const std::size_t part_tokens = plan.part == 0 ? selected.size() : plan.part;
  for (std::size_t begin = 0; begin < selected.size(); begin += part_tokens) {
    const std::size_t end = std::min(begin + part_tokens, selected.size());
    part_.clear(heads, v_dim);
    for (std::size_t at = begin; at < end; at += plan.block) {
      const std::size_t count = std::min<std::size_t>(plan.block, end - at);
      load(call, request, selected.subspan(at, count));
      step(call, static_cast<std::uint32_t>(count));
    }
    total_.add(part_);
  }
  for (std::uint32_t h = 0; h < heads; ++h) {
    const float share = 1 / total_.sum[h];
    lanes::map(
        call.out + (std::size_t{row} * heads + h) * v_dim, v_dim, [=](Vector v) { return v * share; },
        total_.values.data() + std::size_t{h} * v_dim);
  }
}

}  // namespace tpsim::attention
