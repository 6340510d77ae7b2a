// Which pages of host memory the copy of each node is in, where copies are really made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tpsim::kvcache {

class HostPages {
 public:
  // Numbers from `first` on.
  explicit HostPages(std::uint32_t first) : first_(first) { forget_all(); }

  // `node` gets `count` pages, those last given back first.
  void take(std::uint32_t node, std::size_t count) {
    std::vector<std::uint32_t>& pages = of(node);
    for (pages.clear(); pages.size() < count && !free_.empty(); free_.pop_back())
      pages.push_back(free_.back());
    while (pages.size() < count) pages.push_back(next_++);
  }
  void give_back(std::uint32_t node) {
    free_.insert(free_.end(), of(node).begin(), of(node).end());
    of(node).clear();
  }
  // The first `count` pages of `lower` become those of `upper`.
  void split(std::uint32_t upper, std::uint32_t lower, std::size_t count) {
    of(upper).clear();
    if (of(lower).empty()) return;
    const auto begin = of(lower).begin();
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    of(upper).assign(begin, end);
    of(lower).erase(begin, end);
  }
  void forget_all() {
    pages_.clear();
    free_.clear();
    next_ = first_;
  }
  // In the order of the node's tokens; empty: it has no copy.
  std::span<const std::uint32_t> pages(std::uint32_t node) const {
    return node < pages_.size() ? std::span<const std::uint32_t>(pages_[node])
                                : std::span<const std::uint32_t>();
  }

 private:
  std::vector<std::uint32_t>& of(std::uint32_t node) {
    if (node >= pages_.size()) pages_.resize(std::size_t{node} + 1);
    return pages_[node];
  }

  const std::uint32_t first_;
  std::uint32_t next_ = 0;
  std::vector<std::uint32_t> free_;
  std::vector<std::vector<std::uint32_t>> pages_;  // by node
};

}  // namespace tpsim::kvcache
