#include "rank/numeric/draft_tree.h"

#include <cstddef>

namespace tpsim::rank {

std::uint32_t DraftTree::child(std::uint32_t parent, std::uint32_t token) const {
  for (std::uint32_t node = parent + 1; node < size(); ++node) {
    if (parents[node] == parent && tokens[node] == token) return node;
  }
  return size();
}

std::vector<std::uint32_t> depths_of(std::span<const std::uint32_t> parents) {
  std::vector<std::uint32_t> depths(parents.size(), 0);
  for (std::size_t node = 1; node < parents.size(); ++node) depths[node] = depths[parents[node]] + 1;
  return depths;
}

void verify_tree(const DraftTree& tree, std::span<const std::uint32_t> predicted,
                 std::vector<std::uint32_t>& path) {
  path.assign(1, 0);
  for (;;) {
    const std::uint32_t next = tree.child(path.back(), predicted[path.back()]);
    if (next == tree.size()) return;
    path.push_back(next);
  }
}

}  // namespace tpsim::rank
