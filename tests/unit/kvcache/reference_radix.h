// A plain radix pool for comparison: token by token, every touch at once, eviction by looking at every leaf.
// Written from SGLang's rules without a look at kvcache/radix_cache.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "kvcache/pools/pool.h"
#include "kvcache/token_runs.h"

namespace tpsim::kvcache {

using Tokens = std::vector<TokenId>;
using Slots = std::vector<std::uint32_t>;  // one per token: page * page_size + offset

class ReferenceRadix {
 public:
  struct Node {
    Tokens key;
    Slots value;
    Node* parent = nullptr;
    std::list<std::unique_ptr<Node>> children;
    std::uint32_t ns = 0;
    int lock_ref = 0;
    std::uint64_t last_access = 0, creation = 0, hit_count = 0;
    std::int64_t priority = 0;
  };

  ReferenceRadix(std::uint32_t page_size, EvictionPolicy policy, bool split_keeps_creation)
      : page_size_(page_size), policy_(policy), split_keeps_creation_(split_keeps_creation) {
    root_.lock_ref = 1;
  }

  struct Match {
    Slots slots;
    Node* node;
  };
  Match match(Tokens key, std::uint32_t ns) {
    key.resize(key.size() / page_size_ * page_size_);
    Match result{{}, &root_};
    if (key.empty()) return result;
    const std::uint64_t now = ++clock_;
    root_.last_access = now;
    while (!key.empty()) {
      Node* child = find(*result.node, key, ns);
      if (child == nullptr) break;
      child->last_access = now;
      const std::size_t common = common_prefix(child->key, key);
      if (common < child->key.size()) child = split(child, common);
      result.slots.insert(result.slots.end(), child->value.begin(), child->value.end());
      result.node = child;
      key.erase(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(common));
    }
    return result;
  }

  // Nodes that end within the first `counted` tokens count no hit.
  std::size_t insert(Tokens key, Slots value, std::uint32_t ns, std::int64_t priority, std::size_t counted) {
    key.resize(key.size() / page_size_ * page_size_);
    value.resize(key.size());
    const std::uint64_t now = ++clock_;
    Node* node = &root_;
    std::size_t total = 0;
    while (!key.empty()) {
      Node* child = find(*node, key, ns);
      if (child == nullptr) break;
      child->last_access = now;
      const std::size_t common = common_prefix(child->key, key);
      if (common < child->key.size()) child = split(child, common);
      child->priority = std::max(child->priority, priority);
      total += common;
      child->hit_count += total > counted ? 1 : 0;
      key.erase(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(common));
      value.erase(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(common));
      node = child;
    }
    if (!key.empty()) {
      auto leaf = std::make_unique<Node>();
      leaf->key = key;
      leaf->value = value;
      leaf->parent = node;
      leaf->ns = ns;
      leaf->priority = priority;
      leaf->hit_count = total + key.size() > counted ? 1 : 0;
      leaf->creation = leaf->last_access = ++clock_;
      node->children.push_back(std::move(leaf));
    }
    return total;
  }

  static void lock(Node* node, int by) {
    for (; node->parent != nullptr; node = node->parent) node->lock_ref += by;
  }

  // Slots of what is evicted, in order.
  Slots evict(std::size_t tokens) {
    Slots freed;
    while (freed.size() < tokens) {
      Node* first = nullptr;
      visit(root_, [&](Node& node) {
        if (!node.children.empty() || node.lock_ref > 0) return;
        if (first == nullptr || order(node) < order(*first)) first = &node;
      });
      if (first == nullptr) break;
      freed.insert(freed.end(), first->value.begin(), first->value.end());
      first->parent->children.remove_if([&](const auto& child) { return child.get() == first; });
    }
    return freed;
  }

  std::size_t size(bool locked) {
    std::size_t total = 0;
    visit(root_, [&](Node& node) { total += (node.lock_ref > 0) == locked ? node.key.size() : 0; });
    return total;
  }
  std::set<std::uint32_t> pages() {
    std::set<std::uint32_t> out;
    visit(root_, [&](Node& node) {
      for (const std::uint32_t slot : node.value) out.insert(slot / page_size_);
    });
    return out;
  }

 private:
  template <typename F>
  void visit(Node& node, const F& f) {
    for (auto& child : node.children) {
      f(*child);
      visit(*child, f);
    }
  }
  std::tuple<std::int64_t, std::int64_t> order(const Node& node) const {
    const auto access = static_cast<std::int64_t>(node.last_access);
    const auto creation = static_cast<std::int64_t>(node.creation);
    switch (policy_) {
      case EvictionPolicy::kLru:
        return {access, 0};
      case EvictionPolicy::kLfu:
        return {static_cast<std::int64_t>(node.hit_count), access};
      case EvictionPolicy::kFifo:
        return {creation, 0};
      case EvictionPolicy::kMru:
        return {-access, 0};
      case EvictionPolicy::kFilo:
        return {-creation, 0};
      case EvictionPolicy::kSlru:
        return {node.hit_count >= 2 ? 1 : 0, access};
      case EvictionPolicy::kPriority:
        return {node.priority, access};
    }
    return {};
  }
  Node* find(Node& node, const Tokens& key, std::uint32_t ns) const {
    for (auto& child : node.children) {
      if (child->ns == ns && std::equal(key.begin(), key.begin() + page_size_, child->key.begin()))
        return child.get();
    }
    return nullptr;
  }
  std::size_t common_prefix(const Tokens& a, const Tokens& b) const {
    std::size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
    return i / page_size_ * page_size_;
  }
  Node* split(Node* lower, std::size_t at) {
    auto upper = std::make_unique<Node>();
    Node* up = upper.get();
    const auto cut = static_cast<std::ptrdiff_t>(at);
    up->key.assign(lower->key.begin(), lower->key.begin() + cut);
    up->value.assign(lower->value.begin(), lower->value.begin() + cut);
    up->parent = lower->parent;
    up->ns = lower->ns;
    up->lock_ref = lower->lock_ref;
    up->priority = lower->priority;
    up->hit_count = lower->hit_count;
    up->creation = up->last_access = ++clock_;
    if (split_keeps_creation_) up->creation = lower->creation;
    lower->key.erase(lower->key.begin(), lower->key.begin() + cut);
    lower->value.erase(lower->value.begin(), lower->value.begin() + cut);
    for (auto& slot : lower->parent->children) {
      if (slot.get() != lower) continue;
      up->children.push_back(std::move(slot));
      slot = std::move(upper);
      break;
    }
    lower->parent = up;
    return up;
  }

  std::uint32_t page_size_;
  EvictionPolicy policy_;
  bool split_keeps_creation_;
  Node root_;
  std::uint64_t clock_ = 0;
};

}  // namespace tpsim::kvcache
