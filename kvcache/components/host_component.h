// The host tier of the radix tree: which nodes have a copy of their KV in host memory, and which have lost
// the one on the device (SGLang: node.backuped, node.evicted).
//
// A node is on the device, or has a copy, or both; those on the device are a part of the tree from the root
// on. It is a device leaf where none of its children is on the device, and a host leaf where it is not on the
// device and none of its children has a copy: leaves are what goes first of either pool. Storage that reads
// or writes a copy protects it.
//
// Of the host's pool only the number of free tokens matters, but where copies are really made (host_pages.h).
// Units are tokens.
//
// Source: SGLang 0.5.12 mem_cache/hiradix_cache.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "kvcache/components/host_pages.h"
#include "kvcache/components/tree_component.h"

namespace tpsim::kvcache {

class HostComponent final : public TreeComponent {
 public:
  // capacity: tokens of the pool in host memory, a multiple of the page size. `first_page`: the number of its
  // first page, where copies are really made; 0: none is.
  HostComponent(std::uint64_t capacity, std::uint32_t page_size, std::uint32_t first_page)
      : TreeComponent(kHostPool), capacity_(capacity), page_size_(page_size) {
    if (first_page > 0) numbers_.emplace(first_page);
  }

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t available() const { return capacity_ - evictable_size() - protected_size() - reserved_; }
  // Tokens of the pool that no node has yet: what storage reads into. REQUIRES: available(), reserved().
  void reserve(std::uint64_t tokens) { reserved_ += tokens; }
  void give_back_reserved(std::uint64_t tokens) { reserved_ -= tokens; }
  std::uint64_t reserved() const { return reserved_; }

  bool evicted(NodeId node) const { return node < places_.size() && places_[node].evicted; }
  bool is_device_leaf(NodeId node) const {
    return !evicted(node) && (node >= places_.size() || places_[node].children_on_device == 0);
  }
  bool is_host_leaf(NodeId node) const {
    return evicted(node) && has(node) && places_[node].children_with_copy == 0;
  }
  bool is_protected(NodeId node) const { return locks(node) > 0; }
  // The pages of the copy of `node`; empty where none is really made.
  std::span<const std::uint32_t> pages(NodeId node) const {
    return numbers_ ? numbers_->pages(node) : std::span<const std::uint32_t>();
  }

  // `child`, new below `parent`, is on the device, or has a copy only.
  void on_link(NodeId parent, NodeId child, bool on_device);
  // `child` leaves the tree. REQUIRES: drop(child).
  void on_unlink(NodeId parent, NodeId child);
  void set_evicted(const Tree& tree, NodeId node, bool evicted);
  // `node` gets a copy. REQUIRES: available().
  void back_up(const Tree& tree, NodeId node);
  void protect(const Tree& tree, NodeId node) { lock_node(tree, node); }
  void unprotect(const Tree& tree, NodeId node) { unlock_node(tree, node); }
  void forget_all() {
    places_.clear();
    reserved_ = 0;
    if (numbers_) numbers_->forget_all();
  }

  // The last node on the device.
  NodeId usable(const Tree& tree, NodeId end) const override;
  void on_match(const Tree&, NodeId) override {}
  void on_insert(const Tree&, NodeId) override {}
  void on_split(const Tree& tree, NodeId upper, NodeId lower) override;
  // Requests lock nothing here: what they use is on the device.
  std::uint32_t lock(const Tree&, NodeId) override { return 0; }
  void unlock(const Tree&, NodeId, std::uint32_t) override {}
  std::uint64_t units(const Tree& tree, NodeId node) const override { return tree.length(node); }

  // Throws std::logic_error where a counter is off. `children` of `node`, all of them.
  void check_place(NodeId node, const std::vector<NodeId>& children) const;

  auto state() { return std::tuple_cat(TreeComponent::state(), std::tie(places_, reserved_)); }

 private:
  struct Place {
    std::uint32_t children_on_device = 0;
    std::uint32_t children_with_copy = 0;
    bool evicted = false;
  };
  Place& place(NodeId node);
  void give_back(const Tree& tree, NodeId node) override;

  std::uint64_t capacity_;
  std::uint32_t page_size_;
  std::uint64_t reserved_ = 0;
  std::vector<Place> places_;         // by node
  std::optional<HostPages> numbers_;  // of no checkpoint: numeric runs have none
};

}  // namespace tpsim::kvcache
