// A request's drafts as a tree, and which of them the target model confirms.
//
// Node 0 is the token that was sampled last, whose KV is not stored yet; every other node is a guess for what
// follows its parent. Nodes are in an order in which parents come first (SGLang's retrieve_index; its
// next_token and next_sibling follow from the parents).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tpsim::rank {

struct DraftTree {
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint32_t> parents;  // parents[i] < i; parents[0] is 0

  std::uint32_t size() const { return static_cast<std::uint32_t>(tokens.size()); }
  // The child of `parent` with that token, or size() where there is none.
  std::uint32_t child(std::uint32_t parent, std::uint32_t token) const;
};

// Steps from the root to each node.
std::vector<std::uint32_t> depths_of(std::span<const std::uint32_t> parents);

// The accepted path, from the root on: behind a node comes its first child whose token the target model
// predicted at that node. predicted[i] is the target's token behind node i. What is sampled at the last node
// is the next token of the request; nobody drafted it. SGLang's verify_tree_greedy
// (sgl-kernel/csrc/speculative/eagle_utils.cu).
void verify_tree(const DraftTree& tree, std::span<const std::uint32_t> predicted,
                 std::vector<std::uint32_t>& path);

}  // namespace tpsim::rank
