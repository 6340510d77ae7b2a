// Data of another pool on the nodes of the radix tree: a component, as SGLang's unified cache calls it.
//
// A node of the tree holds the pages of its tokens' KV; a component may hold something more for it: the same
// tokens' KV in sliding-window layers (window_component.h), or a state after the last of them. A node may
// lack it: what a component's own eviction takes from a node that stays is a tombstone. A match ends only
// where every component can be used; a node locks its component by a count of its own, a part of the tree's
// locks; the least recently used of the unlocked ones goes first.
//
// This is the book-keeping that all components share, and the questions in which they differ. The tree asks
// them only where it has any; its nodes know nothing of them.
//
// Invariants: the list holds exactly the nodes with data, from the most to the least recently used;
// evictable_size() + protected_size() are the units of all of them.
//
// Source: SGLang 0.5.23 mem_cache/unified_cache/components/base.py, unified_tree_core.py (UnifiedLRUList).
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "kvcache/pools/page_run.h"
#include "kvcache/pools/pool.h"

namespace tpsim::kvcache {

// What a component sees of the tree whose nodes it has data for.
class Tree {
 public:
  using NodeId = std::uint32_t;
  static constexpr NodeId kRoot = 0;  // the end of the empty prefix
  static constexpr NodeId kNoNode = 0xffffffffU;

  virtual NodeId parent(NodeId node) const = 0;
  virtual std::uint32_t length(NodeId node) const = 0;  // tokens, of the node's own key
  virtual std::span<const PageRun> pages(NodeId node) const = 0;

 protected:
  ~Tree() = default;
};

class TreeComponent {
 public:
  using NodeId = Tree::NodeId;
  static constexpr NodeId kNoNode = Tree::kNoNode;

  // `pool`: whose units it counts, and gets its data from.
  explicit TreeComponent(Pool pool) : pool_(pool) {}
  virtual ~TreeComponent() = default;
  TreeComponent(const TreeComponent&) = delete;
  TreeComponent& operator=(const TreeComponent&) = delete;

  Pool pool() const { return pool_; }
  bool has(NodeId node) const { return node < entries_.size() && entries_[node].present; }
  // In the component's own units; protected is what someone locks.
  std::uint64_t evictable_size() const { return evictable_size_; }
  std::uint64_t protected_size() const { return protected_size_; }
  // The least recently used node that no one locks, of those used later than `after` (kNoNode: of all).
  NodeId least_recent(NodeId after = kNoNode) const;

  // Gives `node`'s data back to its pool and leaves a tombstone. Returns the units freed; 0 where there is
  // none.
  std::uint64_t drop(const Tree& tree, NodeId node);
  // The node itself is gone, too: its number may be used again. REQUIRES: drop(node).
  void forget(NodeId node);
  // Forgets everything; nothing is given back.
  void reset();

  // The deepest node, `end` or one above it, where a match may end.
  virtual NodeId usable(const Tree& tree, NodeId end) const = 0;
  // A match, or an insertion, ended at `node`: what it uses becomes the most recently used.
  virtual void on_match(const Tree& tree, NodeId node) = 0;
  virtual void on_insert(const Tree& tree, NodeId node) = 0;
  // The first tokens of `lower` were cut off into the new node `upper`, its parent.
  virtual void on_split(const Tree& tree, NodeId upper, NodeId lower) = 0;
  // Locks what a request with prefix `node` needs. What is returned unlocks exactly that, however nodes are
  // split meanwhile.
  virtual std::uint32_t lock(const Tree& tree, NodeId node) = 0;
  virtual void unlock(const Tree& tree, NodeId node, std::uint32_t receipt) = 0;
  // Of the data that `node` has, or would have.
  virtual std::uint64_t units(const Tree& tree, NodeId node) const = 0;

  // Throws std::logic_error where the invariants are broken.
  void check_invariants(const Tree& tree) const;

  auto state() { return std::tie(entries_, newest_, oldest_, evictable_size_, protected_size_); }

 protected:
  // `node` gets data (it had none), as the most recently used.
  void put(const Tree& tree, NodeId node);
  // A split: the two halves hold together what `lower` held, with its locks. The sizes stay.
  void share(NodeId upper, NodeId lower);
  std::uint32_t locks(NodeId node) const { return node < entries_.size() ? entries_[node].lock_ref : 0; }
  void lock_node(const Tree& tree, NodeId node);
  void unlock_node(const Tree& tree, NodeId node);
  // Makes `node`, which has data, the most recently used, or the next after `newer`.
  void touch(NodeId node, NodeId newer = kNoNode);

  virtual void give_back(const Tree& tree, NodeId node) = 0;

 private:
  struct Entry {
    NodeId newer = kNoNode;
    NodeId older = kNoNode;
    std::uint32_t lock_ref = 0;
    bool present = false;
  };
  Entry& entry(NodeId node);
  void link(NodeId node, NodeId newer);
  void unlink(NodeId node);

  const Pool pool_;
  std::vector<Entry> entries_;  // by node
  NodeId newest_ = kNoNode;
  NodeId oldest_ = kNoNode;
  std::uint64_t evictable_size_ = 0;
  std::uint64_t protected_size_ = 0;
};

}  // namespace tpsim::kvcache
