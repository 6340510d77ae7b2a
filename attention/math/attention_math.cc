#include "attention/math/attention_math.h"

#include <algorithm>

#include "attention/math/small_product.h"
#include "proto/base/lanes.h"

namespace tpsim::attention {
namespace {

using lanes::Vector;

constexpr float kNone = SoftmaxPart::kNone;
std::uint32_t group_of(const AttentionCall& call) { return call.shape.num_q_heads / call.shape.num_kv_heads; }

}  // namespace

void extend_tiles(const ExtendPlan& plan, std::vector<ExtendTile>& tiles) {
  for (std::uint32_t i = 0; i < plan.items.size(); ++i) {
    const std::uint32_t q_len = plan.items[i].q_len;
    for (std::uint32_t row = 0; row < q_len; row += tiles.back().rows) {
      std::uint32_t rows = std::min(plan.tile_m, q_len - row);
      if (plan.chunk_len != 0)
        rows = std::min(rows, plan.chunk_len - (plan.items[i].prefix + row) % plan.chunk_len);
      tiles.push_back({i, row, rows});
    }
  }
}

// Row r is token r / group, head r % group of the group.
void AttentionMath::read_queries(const AttentionCall& call, const float* q, const Rows& rows,
                                 std::uint32_t kv_head) {
  const std::uint32_t dim = call.shape.head_dim;
  queries_.resize(std::size_t{rows.tokens} * rows.group * dim);
  float* to = queries_.data();
  for (std::uint32_t t = 0; t < rows.tokens; ++t) {
    const std::size_t row = std::size_t{call.first_row[rows.request]} + rows.first_token + t;
    const float* const from = q + (row * call.shape.num_q_heads + std::size_t{kv_head} * rows.group) * dim;
    for (std::uint32_t i = 0; i < rows.group * dim; ++i) *to++ = from[i] * call.scale;
  }
}

// Keys and values of tokens [begin, end), page by page.
void AttentionMath::load(const AttentionCall& call, std::uint32_t request, std::uint32_t kv_head,
                         std::uint32_t begin, std::uint32_t end) {
  const std::uint32_t k_dim = call.shape.head_dim;
  const std::uint32_t v_dim = call.shape.v_head_dim;
  keys_.resize(std::size_t{end - begin} * k_dim);
  values_.resize(std::size_t{end - begin} * v_dim + kProductSlack);
  if (call.dense != nullptr) {
    load_dense(call, request, kv_head, begin, end);
    return;
  }
  const std::uint32_t page_size = call.store->config().page_size;
  const std::span<const std::uint32_t> table = call.page_tables[request];
  for (std::uint32_t at = begin; at < end;) {
    const std::uint32_t count = std::min(end - at, page_size - at % page_size);
    const std::uint32_t slot = table[at / page_size] * page_size + at % page_size;
    call.store->load_keys(call.layer, slot, count, kv_head, keys_.data() + std::size_t{at - begin} * k_dim);
    call.store->load_values(call.layer, slot, count, kv_head,
                            values_.data() + std::size_t{at - begin} * v_dim);
    at += count;
  }
}

void AttentionMath::load_dense(const AttentionCall& call, std::uint32_t request, std::uint32_t kv_head,
                               std::uint32_t begin, std::uint32_t end) {
  const DenseKv& dense = *call.dense;
  const std::uint32_t v_dim = call.shape.v_head_dim;
  const std::uint32_t rest = call.shape.head_dim - dense.own;
  const std::size_t width = std::size_t{dense.own} + v_dim;
  float* key = keys_.data();
  float* value = values_.data();
  for (std::size_t row = dense.first_row[request] + begin; row < std::size_t{dense.first_row[request]} + end;
       ++row) {
    const float* const head = dense.heads + (row * call.shape.num_kv_heads + kv_head) * width;
    const float* const shared = dense.shared + row * dense.stride;
    key = std::copy(head, head + dense.own, key);
    key = std::copy(shared, shared + rest, key);
    value = std::copy(head + dense.own, head + width, value);
  }
}

// turned_ [dim, count] from keys_ [count, dim].
void AttentionMath::turn_keys(std::uint32_t dim, std::uint32_t count) {
  constexpr std::uint32_t kBlock = 16;
  turned_.resize(std::size_t{dim} * count + kProductSlack);
  for (std::uint32_t first = 0; first < count; first += kBlock) {
    const std::uint32_t last = std::min(first + kBlock, count);
    for (std::uint32_t d = 0; d < dim; ++d) {
      for (std::uint32_t j = first; j < last; ++j)
        turned_[std::size_t{d} * count + j] = keys_[std::size_t{j} * dim + d];
    }
  }
}

// scores_[r, j] for the `count` tokens from `begin` on that are loaded; what a row does not see is -infinity.
void AttentionMath::score(const AttentionCall& call, const Rows& rows, std::uint32_t begin,
                          std::uint32_t count) {
  const std::uint32_t dim = call.shape.head_dim;
  const std::uint32_t num_rows = rows.tokens * rows.group;
  scores_.resize(std::size_t{num_rows} * count);
  constexpr std::uint32_t kWorthTurning = 4;  // rows
  if (num_rows < kWorthTurning) {
    for (std::uint32_t r = 0; r < num_rows; ++r) {
      for (std::uint32_t j = 0; j < count; ++j)
        scores_[std::size_t{r} * count + j] =
            lanes::dot(queries_.data() + std::size_t{r} * dim, keys_.data() + std::size_t{j} * dim, dim);
    }
  } else {
    turn_keys(dim, count);
    small_product(queries_.data(), dim, num_rows, turned_.data(), count, dim, count, scores_.data(), count,
                  /*add=*/false);
  }
  if (const float cap = call.logit_cap; cap > 0) {
    lanes::map(
        scores_.data(), scores_.size(), [=](Vector v) { return cap * lanes::tanh(v / cap); }, scores_.data());
  }
  const std::uint32_t window = call.shape.sliding_window;
  for (std::uint32_t t = 0; t < rows.tokens; ++t) {
    const std::uint32_t position = rows.position + t;
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      float* const row = scores_.data() + std::size_t{t * rows.group + g} * count;
      if (rows.mask != nullptr) {
        const std::uint8_t* const mask = rows.mask + std::size_t{rows.first_token + t} * rows.mask_width;
        for (std::uint32_t j = 0; j < count; ++j) row[j] = mask[begin + j] != 0 ? row[j] : kNone;
        continue;
      }
      // Seen are (position - window, position].
      const std::uint32_t behind = position + 1 > begin ? std::min(position + 1 - begin, count) : 0;
      std::fill(row + behind, row + count, kNone);
      if (window == 0 || position < window) continue;
      const std::uint32_t first = position + 1 - window;
      if (first > begin) std::fill(row, row + std::min(first - begin, count), kNone);
    }
  }
}

// KV tokens [begin, end) in steps, as one part: part_.
void AttentionMath::attend(const AttentionCall& call, const Rows& rows, std::uint32_t kv_head,
                           std::uint32_t begin, std::uint32_t end, std::uint32_t step) {
  part_.clear(rows.tokens * rows.group, call.shape.v_head_dim);
  for (std::uint32_t at = begin; at < end; at += step) {
    // A step begins where the plan says; what the window hides from all rows is not there any more.
    const std::uint32_t last = at + std::min(step, end - at);
    const std::uint32_t first = std::max(at, rows.first_visible);
    if (first >= last) continue;
    load(call, rows.request, kv_head, first, last);
    score(call, rows, first, last - first);
    part_.add(scores_.data(), last - first, values_.data(), call.shape.v_head_dim);
  }
}

// KV tokens [begin, end) in parts of `part_tokens` (0: one part), merged into total_.
void AttentionMath::attend_in_parts(const AttentionCall& call, const Rows& rows, std::uint32_t kv_head,
                                    std::uint32_t begin, std::uint32_t end, std::uint32_t step,
                                    std::uint32_t part_tokens) {
  if (part_tokens == 0) part_tokens = std::max(1U, end - begin);
  for (std::uint32_t at = begin; at < end; at += part_tokens) {
    attend(call, rows, kv_head, at, std::min(end, at + part_tokens), step);
    total_.add(part_);
  }
}

// Divides, with the sink's share, and writes the rows out.
void AttentionMath::finish(const AttentionCall& call, const Rows& rows, std::uint32_t kv_head) {
  const std::uint32_t v_dim = call.shape.v_head_dim;
  for (std::uint32_t r = 0; r < rows.tokens * rows.group; ++r) {
    const std::uint32_t head = kv_head * rows.group + r % rows.group;
    const std::size_t row = std::size_t{call.first_row[rows.request]} + rows.first_token + r / rows.group;
    float* const out = call.out + (row * call.shape.num_q_heads + head) * v_dim;
    float sum = total_.sum[r];
    float factor = 1;
    if (call.sinks != nullptr) {
      const float largest = std::max(total_.largest[r], call.sinks[head]);
      factor = lanes::exp(total_.largest[r] - largest);
      sum = sum * factor + lanes::exp(call.sinks[head] - largest);
    }
    if (sum > 0) {
      const float share = factor / sum;
      lanes::map(
          out, v_dim, [=](Vector v) { return v * share; }, total_.values.data() + std::size_t{r} * v_dim);
    } else {
      std::fill(out, out + v_dim, 0.0F);  // a custom mask may hide everything
    }
  }
}

void AttentionMath::decode(const DecodePlan& plan, const AttentionCall& call, std::uint32_t item,
                           std::uint32_t kv_head) {
  const DecodeItem& of = plan.items[item];
  Rows rows;
  rows.request = of.request;
  rows.tokens = 1;
  rows.group = group_of(call);
  rows.position = of.kv_end - 1;
  if (const std::uint32_t chunk = call.shape.attention_chunk; chunk != 0)
    rows.first_visible = rows.position / chunk * chunk;
  total_.clear(rows.group, call.shape.v_head_dim);
  if (!plan.succ_items.empty()) {
    decode_chunks(plan, call, rows, item, kv_head);
    return;
  }
  read_queries(call, call.q, rows, kv_head);
  if (call.kernel == KernelKind::kGathered) {
    attend_in_parts(call, rows, kv_head, of.kv_begin, of.kv_end, of.kv_end - of.kv_begin, 0);
  } else {
    const std::uint32_t first = of.kv_begin + of.first_tokens;
    if (of.first_tokens > 0) attend_in_parts(call, rows, kv_head, of.kv_begin, first, kDecodeStep, 0);
    attend_in_parts(call, rows, kv_head, first, of.kv_end, kDecodeStep, of.split_tokens);
  }
  finish(call, rows, kv_head);
}

void AttentionMath::extend(const ExtendPlan& plan, const AttentionCall& call, const ExtendTile& tile,
                           std::uint32_t kv_head) {
  const ExtendItem& item = plan.items[tile.item];
  const std::uint32_t end_of_sequence = item.kv_begin + item.prefix + item.q_len;
  Rows rows;
  rows.request = item.request;
  rows.tokens = tile.rows;
  rows.group = group_of(call);
  rows.position = item.kv_begin + item.prefix + tile.row;
  rows.first_token = item.first_row + tile.row;
  if (item.request < call.masks.size()) rows.mask = call.masks[item.request];
  rows.mask_width = end_of_sequence;
  // With a mask a row may stand anywhere from the first new token on, and no window reaches back further.
  const std::uint32_t behind = call.shape.sliding_window;
  const std::uint32_t earliest = rows.mask == nullptr ? rows.position : item.kv_begin + item.prefix;
  if (behind > 0 && earliest + 1 > behind) rows.first_visible = earliest + 1 - behind;
  total_.clear(rows.tokens * rows.group, call.shape.v_head_dim);
  if (plan.chunk_len != 0) {
    extend_chunks(plan, call, rows, kv_head);
    return;
  }
  read_queries(call, call.q, rows, kv_head);
  // A mask may show what causality hides.
  const std::uint32_t window = rows.mask != nullptr ? 0 : call.shape.sliding_window;
  TileRange range = tile_range(plan, item, tile.row, window);
  range.begin += item.kv_begin;
  range.end += item.kv_begin;
  const std::uint32_t prefix_end = item.kv_begin + item.prefix;
  const std::uint32_t end = rows.mask != nullptr ? end_of_sequence : std::min(range.end, end_of_sequence);
  if (call.kernel == KernelKind::kGathered) {
    attend_in_parts(call, rows, kv_head, item.kv_begin, end_of_sequence, end_of_sequence, 0);
  } else if (plan.prefix_rows != 0 && item.prefix > 0) {
    if (range.begin < prefix_end)
      attend_in_parts(call, rows, kv_head, range.begin, prefix_end, plan.tile_n, plan.prefix_chunk);
    attend_in_parts(call, rows, kv_head, std::max(range.begin, prefix_end), end, plan.tile_n, plan.kv_chunk);
  } else if (plan.mla_chunk != 0 && item.prefix > 0) {
    attend_in_parts(call, rows, kv_head, prefix_end, end, plan.tile_n, plan.kv_chunk);
    attend_in_parts(call, rows, kv_head, item.kv_begin, prefix_end, plan.tile_n, plan.mla_chunk);
  } else {
    attend_in_parts(call, rows, kv_head, range.begin, end, plan.tile_n, plan.kv_chunk);
  }
  finish(call, rows, kv_head);
}

void AttentionMath::decode(const DecodePlan& plan, const AttentionCall& call) {
  for (std::uint32_t item = 0; item < plan.items.size(); ++item) {
    for (std::uint32_t head = 0; head < call.shape.num_kv_heads; ++head) decode(plan, call, item, head);
  }
}

void AttentionMath::extend(const ExtendPlan& plan, const AttentionCall& call) {
  tiles_.clear();
  extend_tiles(plan, tiles_);
  for (const ExtendTile& tile : tiles_) {
    for (std::uint32_t head = 0; head < call.shape.num_kv_heads; ++head) extend(plan, call, tile, head);
  }
}

}  // namespace tpsim::attention
