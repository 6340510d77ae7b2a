#include "scheduler/workload/prefix_index.h"

#include <algorithm>
#include <span>
#include <utility>

namespace tpsim::scheduler {

// A position in a sequence, moving forward.
class PrefixIndex::Cursor {
 public:
  explicit Cursor(const kvcache::TokenSequence& sequence) : runs_(sequence.runs()) {}

  bool at_end() const { return runs_.empty(); }
  kvcache::TokenId id() const { return runs_.front().first + offset_; }
  std::uint32_t left_in_run() const { return runs_.front().length - offset_; }

  // REQUIRES: count <= left_in_run().
  void advance_in_run(std::uint32_t count) {
    offset_ += count;
    if (offset_ == runs_.front().length) {
      runs_ = runs_.subspan(1);
      offset_ = 0;
    }
  }
  // REQUIRES: so many tokens are left.
  void advance(std::size_t count) {
    while (count > 0) {
      const auto step = static_cast<std::uint32_t>(std::min<std::size_t>(count, left_in_run()));
      advance_in_run(step);
      count -= step;
    }
  }
  // The next `count` tokens. REQUIRES: so many are left.
  kvcache::TokenSequence take(std::size_t count) {
    kvcache::TokenSequence taken;
    while (count > 0) {
      const auto step = static_cast<std::uint32_t>(std::min<std::size_t>(count, left_in_run()));
      taken.append({id(), step});
      advance_in_run(step);
      count -= step;
    }
    return taken;
  }

 private:
  std::span<const kvcache::TokenRun> runs_;
  std::uint32_t offset_ = 0;  // in the first of runs_
};

namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  // The finaliser of MurmurHash3 over both.
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 33);
}

}  // namespace

std::uint64_t PrefixIndex::child_key(std::uint32_t parent, const Cursor& at) const {
  std::uint64_t key = mix(0, parent);
  Cursor cursor = at;
  for (std::uint32_t left = page_size_; left > 0;) {
    // Runs are canonical, so equal pages are cut into equal pieces.
    const std::uint32_t step = std::min(left, cursor.left_in_run());
    key = mix(mix(key, cursor.id()), step);
    cursor.advance_in_run(step);
    left -= step;
  }
  return key;
}

std::size_t PrefixIndex::common(const kvcache::TokenSequence& edge, Cursor at) {
  Cursor other(edge);
  std::size_t count = 0;
  while (!other.at_end() && !at.at_end() && other.id() == at.id()) {
    const std::uint32_t step = std::min(other.left_in_run(), at.left_in_run());
    other.advance_in_run(step);
    at.advance_in_run(step);
    count += step;
  }
  return count;
}

std::uint32_t PrefixIndex::find_child(std::uint32_t parent, const Cursor& at) const {
  const auto chain = children_.find(child_key(parent, at));
  std::uint32_t node = chain == children_.end() ? kNone : chain->second;
  while (node != kNone && (nodes_[node].parent != parent || common(nodes_[node].edge, at) < page_size_)) {
    node = nodes_[node].next_in_chain;
  }
  return node;
}

void PrefixIndex::add_child(std::uint32_t parent, std::uint32_t child) {
  const std::uint64_t key = child_key(parent, Cursor(nodes_[child].edge));
  const auto [chain, is_new] = children_.try_emplace(key, child);
  nodes_[child].parent = parent;
  nodes_[child].next_in_chain = is_new ? kNone : chain->second;
  chain->second = child;
}

// A new node takes over the first `length` tokens of `node` and its place under its parent.
void PrefixIndex::split(std::uint32_t node, std::size_t length) {
  const auto upper = static_cast<std::uint32_t>(nodes_.size());
  nodes_.emplace_back();
  const std::uint32_t parent = nodes_[node].parent;
  const std::uint64_t key = child_key(parent, Cursor(nodes_[node].edge));
  std::uint32_t* link = &children_.at(key);
  while (*link != node) link = &nodes_[*link].next_in_chain;
  *link = upper;
  nodes_[upper].parent = parent;
  nodes_[upper].next_in_chain = nodes_[node].next_in_chain;

  Cursor cursor(nodes_[node].edge);
  const std::size_t size = nodes_[node].edge.size();
  kvcache::TokenSequence first = cursor.take(length);
  kvcache::TokenSequence rest = cursor.take(size - length);
  nodes_[upper].edge = std::move(first);
  nodes_[node].edge = std::move(rest);
  add_child(upper, node);
}

std::size_t PrefixIndex::match(std::uint32_t space, const kvcache::TokenSequence& sequence,
                               std::size_t limit) const {
  const auto root = roots_.find(space);
  if (root == roots_.end()) return 0;
  limit = std::min(limit, sequence.size()) / page_size_ * page_size_;
  std::uint32_t node = root->second;
  std::size_t matched = 0;
  Cursor cursor(sequence);
  while (matched < limit) {
    node = find_child(node, cursor);
    if (node == kNone) break;
    const std::size_t edge = nodes_[node].edge.size();
    const std::size_t equal =
        std::min(common(nodes_[node].edge, cursor) / page_size_ * page_size_, limit - matched);
    matched += equal;
    if (equal < edge) break;
    cursor.advance(equal);
  }
  return matched;
}

void PrefixIndex::insert(std::uint32_t space, const kvcache::TokenSequence& sequence) {
  const auto [root, is_new] = roots_.try_emplace(space, static_cast<std::uint32_t>(nodes_.size()));
  if (is_new) nodes_.emplace_back();
  std::size_t left = sequence.size() / page_size_ * page_size_;
  std::uint32_t node = root->second;
  Cursor cursor(sequence);
  while (left > 0) {
    const std::uint32_t child = find_child(node, cursor);
    if (child == kNone) {
      const auto leaf = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[leaf].edge = cursor.take(left);
      add_child(node, leaf);
      return;
    }
    const std::size_t equal = std::min(common(nodes_[child].edge, cursor) / page_size_ * page_size_, left);
    if (equal < nodes_[child].edge.size()) {
      split(child, equal);
      node = nodes_[child].parent;
    } else {
      node = child;
    }
    cursor.advance(equal);
    left -= equal;
  }
}

}  // namespace tpsim::scheduler
