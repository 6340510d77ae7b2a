// What an unlimited prefix cache would find: a trie of token runs that forgets nothing.
//
// Written apart from kvcache's radix pool, of which it is the upper bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kvcache/token_runs.h"

namespace tpsim::scheduler {

class PrefixIndex {
 public:
  // Only whole pages of `page_size` tokens are matched. REQUIRES: page_size > 0.
  explicit PrefixIndex(std::uint32_t page_size) : page_size_(page_size) {}

  // Tokens of the longest beginning of `sequence` that was inserted in `space`, in whole pages, at most
  // `limit`.
  std::size_t match(std::uint32_t space, const kvcache::TokenSequence& sequence, std::size_t limit) const;
  // Remembers the whole pages of `sequence`.
  void insert(std::uint32_t space, const kvcache::TokenSequence& sequence);

  std::size_t nodes() const { return nodes_.size(); }

 private:
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

  // Tokens `edge` behind the parent. Siblings begin with different pages.
  struct Node {
    kvcache::TokenSequence edge;          // whole pages; empty for the root of a namespace
    std::uint32_t next_in_chain = kNone;  // another node with the same key in children_
    std::uint32_t parent = kNone;
  };
  class Cursor;

  std::uint64_t child_key(std::uint32_t parent, const Cursor& at) const;
  std::uint32_t find_child(std::uint32_t parent, const Cursor& at) const;
  void add_child(std::uint32_t parent, std::uint32_t child);
  // Tokens that `edge` and what is at `at` have in common.
  static std::size_t common(const kvcache::TokenSequence& edge, Cursor at);
  void split(std::uint32_t node, std::size_t length);

  std::uint32_t page_size_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint32_t, std::uint32_t> roots_;     // of each namespace
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // hash of (parent, first page) → chain
};

}  // namespace tpsim::scheduler
