#include "attention/compressed_load.h"

#include <algorithm>
#include <cstdint>

namespace tpsim::attention {
namespace {

// Sum over lengths 1 to n of min(length / ratio, most), in whole numbers.
double sum_of_entries(std::uint64_t n, std::uint64_t ratio, std::uint64_t most) {
  const auto whole = [ratio](std::uint64_t end) {
    const std::uint64_t groups = end / ratio, rest = end % ratio;
    const std::uint64_t before = groups == 0 ? 0 : groups * (groups - 1) / 2;
    return static_cast<double>(ratio * before + groups * (rest + 1));
  };
  const std::uint64_t reached = most * ratio;  // the shortest sequence with so many
  if (n < reached) return whole(n);
  return whole(reached - 1) + static_cast<double>(n - reached + 1) * static_cast<double>(most);
}

}  // namespace

SparseLoad compressed_load(std::span<const SparseItem> items, const LayerShape& layer) {
  constexpr std::uint64_t kAll = 1U << 30;
  const std::uint64_t window = layer.sliding_window, ratio = layer.compress_ratio;
  const std::uint64_t top_k = layer.top_k > 0 ? layer.top_k : kAll;
  SparseLoad load;
  for (const SparseItem& item : items) {
    const std::uint64_t first = item.prefix, length = first + item.q_len;
    const auto between = [&](std::uint64_t each, std::uint64_t most) {
      return sum_of_entries(length, each, most) - sum_of_entries(first, each, most);
    };
    const double windows = between(1, window);
    const double entries = ratio > 0 ? between(ratio, top_k) : 0;
    const std::uint64_t compressed = ratio > 0 ? length / ratio : 0;
    ++load.requests;
    load.queries += item.q_len;
    load.listed += windows + entries;
    load.distinct += std::min<double>(windows, static_cast<double>(std::min(length, item.q_len + window))) +
                     std::min<double>(entries, static_cast<double>(compressed));
    load.longest_list = std::max(load.longest_list, static_cast<std::uint32_t>(std::min(length, window) +
                                                                               std::min(compressed, top_k)));
    if (layer.index_heads == 0) continue;
    load.stored += static_cast<double>(compressed);
    load.scored += between(ratio, kAll);
    // Rows with more entries than are chosen.
    const std::uint64_t searched_from = std::max(first, std::min(length, (top_k + 1) * ratio - 1));
    load.searching += static_cast<double>(length - searched_from);
    load.searched += sum_of_entries(length, ratio, kAll) - sum_of_entries(searched_from, ratio, kAll);
    if (searched_from < length)
      load.longest_row = std::max(load.longest_row, static_cast<std::uint32_t>(compressed));
  }
  load.walked = load.listed;
  return load;
}

void plan_compressed(const LayerShape& layer, const SparseLoad& load, bool decodes,
                     std::uint32_t multiprocessors, SparsePlan& plan) {
  constexpr std::uint32_t kTile = 64, kMostParts = 16;
  plan.top_k = layer.top_k;
  plan.rows = (layer.num_q_heads + kTile - 1) / kTile * kTile;
  plan.part = 0;
  if (!decodes) return;
  const double share = multiprocessors / std::max(1.0, load.queries);
  const auto parts = static_cast<std::uint32_t>(std::clamp<double>(share, 1, kMostParts));
  if (parts > 1) plan.part = std::max(kTile, load.longest_list / parts);
}

}  // namespace tpsim::attention
