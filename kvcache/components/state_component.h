// The state component of the radix tree: nodes at whose end the state of layers with a recurrence was kept
// (state_slots.h). A request can go on from there, and nowhere else.
//
// A match may end at such a node only. A lock is on the one node that a request goes on from, not on those
// above it: their states may go while it runs. A split leaves the state with the lower half, whose end is
// still where it was taken. Units are states.
//
// Source: SGLang 0.5.23 mem_cache/unified_cache/components/mamba.py.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "kvcache/components/tree_component.h"
#include "kvcache/pools/state_slots.h"

namespace tpsim::kvcache {

class StateComponent final : public TreeComponent {
 public:
  // `slots` takes back the slots of evicted states, and outlives this.
  explicit StateComponent(StateSlots& slots) : TreeComponent(kStatePool), slots_(slots) {}

  // A request hands over `slot`, the state at the end of `node`. False, and nothing taken, where there is one
  // already; both are a use of it.
  bool offer(const Tree& tree, NodeId node, std::uint32_t slot);
  // REQUIRES: has(node).
  std::uint32_t slot(NodeId node) const { return slot_of_[node]; }

  NodeId usable(const Tree& tree, NodeId end) const override;
  void on_match(const Tree& tree, NodeId node) override;
  void on_insert(const Tree&, NodeId) override {}
  void on_split(const Tree&, NodeId, NodeId) override {}
  // The receipt: 1 where there is something to unlock.
  std::uint32_t lock(const Tree& tree, NodeId node) override;
  void unlock(const Tree& tree, NodeId node, std::uint32_t receipt) override;
  std::uint64_t units(const Tree&, NodeId) const override { return 1; }

  auto state() { return std::tuple_cat(TreeComponent::state(), std::tie(slot_of_)); }

 private:
  void give_back(const Tree& tree, NodeId node) override;

  StateSlots& slots_;
  std::vector<std::uint32_t> slot_of_;  // by node
};

}  // namespace tpsim::kvcache
