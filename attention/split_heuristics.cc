#include "attention/split_heuristics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "proto/base/ceil_div.h"
#include "proto/base/widest_vectors.h"

namespace tpsim::attention {

std::uint32_t FlashSplits::operator()(std::uint32_t blocks, std::uint32_t kv_steps) {
  if (blocks >= 0.8 * multiprocessors_) return 1;  // nearly full without splitting
  if (blocks >= rows_.size()) rows_.resize(std::size_t{blocks} + 1);
  Row& row = rows_[blocks];
  if (row.front() == 0) fill(blocks, row);
  return row[std::min(kv_steps, kMost)];
}

// All steps at once: with one more split to choose from, the best is as good or better, and the first that
// comes near it the same or a later one.
void FlashSplits::fill(std::uint32_t blocks, Row& row) const {
  std::array<double, kMost + 1> fills;
  double best = 0;
  std::uint32_t first = 1;
  row.fill(1);
  for (std::uint32_t steps = 1; steps <= kMost; ++steps) {
    if (steps <= multiprocessors_) {
      const double waves = double(blocks) * steps / multiprocessors_;
      fills[steps] = waves / std::ceil(waves);
      best = std::max(best, fills[steps]);
      while (fills[first] < 0.85 * best) ++first;
    }
    if (steps > 4) row[steps] = static_cast<std::uint8_t>(first);
  }
}

std::uint32_t flash3_tile_m(std::uint32_t head_dim) { return head_dim <= 64 ? 192 : 128; }

std::uint32_t flash3_tile_n(std::uint32_t head_dim) {
  if (head_dim <= 128) return 128;
  return head_dim <= 192 ? 96 : 80;
}

void flash3_decode_blocks(const LayerShape& layer, DecodePlan& plan) {
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = layer.head_dim == 128 && group <= 64 ? 64 : flash3_tile_m(layer.head_dim);
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
}

std::uint32_t flash3_steps_per_block(std::uint64_t steps, std::uint32_t multiprocessors) {
  return std::max(1U,
                  static_cast<std::uint32_t>(std::ceil(static_cast<double>(steps) * 1.1 / multiprocessors)));
}

namespace {

// Steps of tile_n tokens that the longest of some sequences, and all of them, take.
struct Flash3Steps {
  std::uint32_t longest = 0;  // tokens
  std::uint64_t all = 0;
};

// How sequences are cut: those of up to `whole` tokens are not.
struct Flash3Cut {
  std::uint32_t tile_n;
  std::uint32_t most;
  std::uint64_t whole;
  std::uint32_t per_block;  // steps

  struct Parts {
    std::uint32_t count;
    std::uint32_t tokens;  // of each but the last
  };
  Parts parts(std::uint32_t tokens) const {
    const std::uint32_t steps = ceil_div(tokens, tile_n);
    const std::uint32_t part = ceil_div(steps, std::min(ceil_div(steps, per_block), most));
    return {ceil_div(steps, part), part * tile_n};  // whole steps: fewer parts may do
  }
};

// Null: nothing is cut.
std::optional<Flash3Cut> flash3_cut(std::uint32_t blocks_per_split, std::uint32_t tile_n,
                                    FlashSplits& most_splits, const Flash3Steps& steps) {
  // An upper bound first, as if the longest sequence were alone: the others may be short.
  const std::uint32_t most = most_splits(blocks_per_split, ceil_div(steps.longest, tile_n));
  if (most == 1) return std::nullopt;
  const std::uint32_t per_block =
      flash3_steps_per_block(steps.all * blocks_per_split, most_splits.multiprocessors());
  const std::uint64_t whole = std::uint64_t{per_block} * tile_n;
  if (steps.longest <= whole) return std::nullopt;
  return Flash3Cut{tile_n, most, whole, per_block};
}

}  // namespace

bool flash3_split(std::uint32_t blocks_per_split, std::uint32_t tile_n, FlashSplits& most_splits,
                  std::span<DecodeItem> items) {
  Flash3Steps steps;
  for (const DecodeItem& item : items) {
    steps.longest = std::max(steps.longest, item.split_tokens);
    steps.all += ceil_div(item.split_tokens, tile_n);
  }
  const std::optional<Flash3Cut> cut = flash3_cut(blocks_per_split, tile_n, most_splits, steps);
  if (!cut) return false;
  for (DecodeItem& item : items) {
    if (item.split_tokens <= cut->whole) continue;
    const Flash3Cut::Parts parts = cut->parts(item.split_tokens);
    item.split_tokens = parts.tokens;
    item.splits = parts.count;
  }
  return true;
}

namespace {

// Lengths are below 2^31: signed comparisons are what vectors of every processor can do.
std::uint32_t longest_of(std::span<const std::uint32_t> lengths) {
  return in_widest_vectors([=]() TPSIM_LOOP {
    std::int32_t longest = 0;
    for (const std::uint32_t length : lengths) longest = std::max(longest, static_cast<std::int32_t>(length));
    return static_cast<std::uint32_t>(longest);
  });
}

// Steps and tokens of all; in narrow numbers where they fit, several at a time.
Flash3Steps add_up(std::span<const std::uint32_t> lengths, std::uint32_t tile_n, std::uint64_t& tokens) {
  Flash3Steps steps{.longest = longest_of(lengths)};
  const bool narrow = lengths.size() * (std::uint64_t{steps.longest} + tile_n) <= UINT32_MAX;
  if (const int shift = std::countr_zero(tile_n); narrow && tile_n == 1U << shift) {
    struct Sums {
      std::uint32_t steps = 0, tokens = 0;
    };
    const Sums sums = in_widest_vectors([=]() TPSIM_LOOP {
      std::uint32_t all = 0;
      std::uint32_t sum = 0;
      for (const std::uint32_t length : lengths) {
        all += (length + tile_n - 1) >> shift;
        sum += length;
      }
      return Sums{all, sum};
    });
    steps.all = sums.steps;
    tokens = sums.tokens;
    return steps;
  }
  tokens = 0;
  for (const std::uint32_t length : lengths) {
    steps.all += ceil_div(length, tile_n);
    tokens += length;
  }
  return steps;
}

// What sequences are cut into.
struct Cuts {
  std::uint64_t parts = 0;
  std::uint32_t most_parts = 1;    // of a sequence
  std::uint32_t longest_part = 0;  // tokens

  void add(std::uint32_t count, std::uint32_t tokens) {
    parts += count;
    most_parts = std::max(most_parts, count);
    longest_part = std::max(longest_part, tokens);
  }
};

// ceil(a / b) of many a at once, without their 64 bits. A quotient of such numbers, in 24 bits, is nearer to
// the true one than that is to a whole number above it, on any machine: so it is rounded down rightly, and
// its product with a reciprocal rounded up, too. REQUIRES: 0 <= a, 1 <= b, a + b < kMostNarrow.
constexpr std::int32_t kMostNarrow = 1 << 20;
TPSIM_LOOP inline std::int32_t narrow_ceil(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<float>(a + b - 1) / static_cast<float>(b));
}
TPSIM_LOOP inline std::int32_t narrow_ceil(std::int32_t a, std::int32_t b, float reciprocal) {
  return static_cast<std::int32_t>(static_cast<float>(a + b - 1) * reciprocal);
}
float reciprocal_above(std::int32_t b) { return std::nextafter(1.0F / static_cast<float>(b), 2.0F); }

// As Flash3Cut::parts() of each sequence, of which the longest has `longest` tokens.
Cuts cut_up(const Flash3Cut& cut, std::span<const std::uint32_t> lengths, std::uint32_t longest) {
  Cuts all;
  if (std::uint64_t{longest} + cut.tile_n + cut.whole > kMostNarrow) {
    for (const std::uint32_t length : lengths) {
      const Flash3Cut::Parts parts = length > cut.whole ? cut.parts(length) : Flash3Cut::Parts{1, length};
      all.add(parts.count, parts.tokens);
    }
    return all;
  }
  const auto tile_n = static_cast<std::int32_t>(cut.tile_n);
  const auto whole = static_cast<std::int32_t>(cut.whole);
  const auto most = static_cast<std::int32_t>(cut.most);
  const auto per_block = static_cast<std::int32_t>(cut.per_block);
  const float by_tile = reciprocal_above(tile_n);
  const float by_block = reciprocal_above(per_block);
  struct Sums {
    std::int32_t parts = 0, most_parts = 1, longest_part = 0;
  };
  const Sums sums = in_widest_vectors([=]() TPSIM_LOOP {
    std::int32_t parts = 0;
    std::int32_t most_parts = 1;
    std::int32_t longest_part = 0;
    for (const std::uint32_t unsigned_length : lengths) {
      const auto length = static_cast<std::int32_t>(unsigned_length);
      const std::int32_t steps = narrow_ceil(length, tile_n, by_tile);
      const std::int32_t blocks = narrow_ceil(steps, per_block, by_block);
      const std::int32_t wanted = blocks < most ? blocks : most;
      const std::int32_t part = narrow_ceil(steps, wanted | (wanted == 0));
      const std::int32_t count = narrow_ceil(steps, part | (part == 0));  // the last may be empty: fewer
      const std::int32_t cut = length > whole ? -1 : 0;  // a mask: a branch would be guessed wrong
      const std::int32_t kept = 1 + ((count - 1) & cut);
      const std::int32_t tokens = length + ((part * tile_n - length) & cut);
      parts += kept;
      most_parts = kept > most_parts ? kept : most_parts;
      longest_part = tokens > longest_part ? tokens : longest_part;
    }
    return Sums{parts, most_parts, longest_part};
  });
  return {static_cast<std::uint32_t>(sums.parts), static_cast<std::uint32_t>(sums.most_parts),
          static_cast<std::uint32_t>(sums.longest_part)};
}

}  // namespace

bool flash3_totals(std::uint32_t blocks_per_split, std::uint32_t tile_n, FlashSplits& most_splits,
                   std::span<const std::uint32_t> seq_lens, DecodeTotals& totals) {
  std::uint64_t tokens = 0;
  const Flash3Steps steps = add_up(seq_lens, tile_n, tokens);
  totals = {.requests = seq_lens.size(),
            .tokens = tokens,
            .parts = seq_lens.size(),
            .longest = steps.longest,
            .longest_part = steps.longest};
  const std::optional<Flash3Cut> cut = flash3_cut(blocks_per_split, tile_n, most_splits, steps);
  if (!cut) return false;
  const Cuts cuts = cut_up(*cut, seq_lens, steps.longest);
  totals.parts = cuts.parts;
  totals.most_parts = cuts.most_parts;
  totals.longest_part = cuts.longest_part;
  return true;
}

void split_in_steps(std::uint32_t splits, std::uint32_t step, DecodePlan& plan) {
  if (splits == 1) return;
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    item.split_tokens = std::min(ceil_div(ceil_div(tokens, step), splits) * step, tokens);
    item.splits = ceil_div(tokens, item.split_tokens);
    plan.merge = plan.merge || item.splits > 1;
  }
}

}  // namespace tpsim::attention
