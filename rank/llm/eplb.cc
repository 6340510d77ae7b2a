#include "rank/llm/eplb.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tpsim::rank {

std::vector<std::uint32_t> balanced_placement(const std::vector<double>& loads, std::uint32_t redundant,
                                              std::uint32_t ep_size) {
  // replicate_experts(): one more of the expert whose copies have most to do.
  std::vector<std::uint32_t> copies(loads.size(), 1);
  std::vector<std::uint32_t> logical = trivial_placement(static_cast<std::uint32_t>(loads.size()), 0);
  const auto load_of = [&](std::size_t expert) { return loads[expert] / copies[expert]; };
  for (std::uint32_t i = 0; i < redundant; ++i) {
    std::uint32_t most = 0;
    for (std::uint32_t expert = 1; expert < loads.size(); ++expert)
      if (load_of(expert) > load_of(most)) most = expert;
    logical.push_back(most);
    ++copies[most];
  }
  // balanced_packing(): the heaviest first, each to the rank with least that has room.
  const std::size_t room = logical.size() / ep_size;
  if (room == 1) return logical;
  std::vector<std::size_t> order(logical.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return load_of(logical[a]) > load_of(logical[b]); });
  std::vector<std::vector<std::uint32_t>> ranks(ep_size);
  std::vector<double> sums(ep_size, 0);
  for (const std::size_t physical : order) {
    std::size_t least = ep_size;
    for (std::size_t rank = 0; rank < ep_size; ++rank)
      if (ranks[rank].size() < room && (least == ep_size || sums[rank] < sums[least])) least = rank;
    ranks[least].push_back(logical[physical]);
    sums[least] += load_of(logical[physical]);
  }
  std::vector<std::uint32_t> placed;
  for (const std::vector<std::uint32_t>& rank : ranks) placed.insert(placed.end(), rank.begin(), rank.end());
  return placed;
}

std::vector<std::uint32_t> trivial_placement(std::uint32_t experts, std::uint32_t redundant) {
  std::vector<std::uint32_t> placed(experts + redundant);
  for (std::uint32_t i = 0; i < placed.size(); ++i) placed[i] = i % experts;
  return placed;
}

}  // namespace tpsim::rank
