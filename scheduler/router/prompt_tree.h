// What a router remembers of the prompts that it sent, and where: one tree of all prompts, whose nodes know
// the replicas that saw them. An approximation of their caches: it learns of no eviction there, and evicts by
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kvcache/token_runs.h"

namespace tpsim::scheduler {

class PromptTree {
 public:
  explicit PromptTree(std::size_t replicas) : sizes_(replicas) { nodes_.emplace_back(); }

  struct Match {
    std::uint64_t tokens = 0;
    std::size_t replica = 0;  // that saw them last
  };
  // The longest beginning of `prompt` that any replica saw. Of no tokens: replica 0.
  Match match(const kvcache::TokenSequence& prompt);
  // `replica` has seen `prompt`.
  void insert(const kvcache::TokenSequence& prompt, std::size_t replica);
  // Forgets, for each replica that saw more than `tokens`, the leaves that it saw longest ago.
  void evict(std::uint64_t tokens);
  // Forgets all that `replica` saw.
  void remove(std::size_t replica) { shrink(static_cast<std::uint32_t>(replica), 0); }
  // Tokens that a replica saw and that are remembered.
  std::uint64_t size(std::size_t replica) const { return sizes_[replica]; }

 private:
  static constexpr std::uint32_t kNone = 0;  // the root is nobody's child
  struct Seen {
    std::uint32_t replica = 0;
    std::uint64_t epoch = 0;
  };
  struct Node {
    std::vector<kvcache::TokenRun> runs;  // that lead to it from its parent
    std::uint64_t tokens = 0;
    std::uint32_t parent = kNone;
    std::unordered_map<kvcache::TokenId, std::uint32_t> children;  // by their first token
    std::vector<Seen> seen;
    std::uint32_t last = 0;  // the replica that saw it last
  };
  // A place in a prompt: a run, and tokens of it that lie behind.
  struct Cursor {
    std::size_t run = 0;
    std::uint32_t offset = 0;
  };

  std::uint64_t common(const Node& node, const kvcache::TokenSequence& prompt, Cursor& at) const;
  std::uint32_t add(Node node);
  void split(std::uint32_t node, std::uint64_t tokens);
  void see(std::uint32_t node, std::size_t replica);
  bool leaf_of(std::uint32_t node, std::uint32_t replica) const;
  void forget(std::uint32_t node, std::uint32_t replica);
  void shrink(std::uint32_t replica, std::uint64_t tokens);

  std::vector<Node> nodes_;  // the root first
  std::vector<std::uint32_t> free_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t epoch_ = 0;
};

}  // namespace tpsim::scheduler
