// The window component of the radix tree: which nodes still have their pages' window part, and which have
// only what full-attention layers need.
//
// A match may end where the last `window` tokens have it, or all tokens down from the root; a request locks
// the nodes that hold them. Units are tokens.
//
// Source: SGLang 0.5.23 mem_cache/unified_cache/components/swa.py.
#pragma once

#include <cstdint>

#include "kvcache/components/tree_component.h"
#include "kvcache/pools/window_pages.h"

namespace tpsim::kvcache {

class WindowComponent final : public TreeComponent {
 public:
  // window: tokens before the one that attends, as SGLang's sliding_window_size. `pages` may be null where
  // the tree has no pages.
  WindowComponent(std::uint32_t window, std::uint32_t page_size, WindowPages* pages)
      : TreeComponent(kWindowPool), window_(window), page_size_(page_size), pages_(pages) {}

  // The whole pages that a window needs.
  std::uint32_t paged_window() const { return (window_ + page_size_ - 1) / page_size_ * page_size_; }
  // All pages of `node`, a tombstone or new, have their window part now.
  void attach(const Tree& tree, NodeId node) { put(tree, node); }

  NodeId usable(const Tree& tree, NodeId end) const override;
  void on_match(const Tree& tree, NodeId node) override { refresh(tree, node); }
  void on_insert(const Tree& tree, NodeId node) override { refresh(tree, node); }
  void on_split(const Tree&, NodeId upper, NodeId lower) override { share(upper, lower); }
  // The receipt: tokens that are locked, in whole nodes from `node` up.
  std::uint32_t lock(const Tree& tree, NodeId node) override;
  void unlock(const Tree& tree, NodeId node, std::uint32_t receipt) override;
  std::uint64_t units(const Tree& tree, NodeId node) const override;

 private:
  void refresh(const Tree& tree, NodeId node);
  void give_back(const Tree& tree, NodeId node) override;

  std::uint32_t window_;
  std::uint32_t page_size_;
  WindowPages* pages_;
};

}  // namespace tpsim::kvcache
