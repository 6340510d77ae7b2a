#include "scheduler/router/prompt_tree.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

namespace tpsim::scheduler {

using kvcache::TokenRun;
using kvcache::TokenSequence;

// Tokens of `node` that `prompt` goes on with from `at`, which moves behind them.
std::uint64_t PromptTree::common(const Node& node, const TokenSequence& prompt, Cursor& at) const {
  std::uint64_t shared = 0;
  const std::span<const TokenRun> runs = prompt.runs();
  for (const TokenRun& run : node.runs) {
    for (std::uint32_t of_run = 0; of_run < run.length;) {
      if (at.run == runs.size() || runs[at.run].first + at.offset != run.first + of_run) return shared;
      const std::uint32_t length = std::min(run.length - of_run, runs[at.run].length - at.offset);
      shared += length;
      of_run += length;
      at.offset += length;
      if (at.offset == runs[at.run].length) at = {at.run + 1, 0};
    }
  }
  return shared;
}

PromptTree::Match PromptTree::match(const TokenSequence& prompt) {
  Match match;
  Cursor at;
  std::uint32_t node = 0;
  while (at.run < prompt.runs().size()) {
    const auto child = nodes_[node].children.find(prompt.runs()[at.run].first + at.offset);
    if (child == nodes_[node].children.end()) break;
    node = child->second;
    const std::uint64_t shared = common(nodes_[node], prompt, at);
    match.tokens += shared;
    if (shared < nodes_[node].tokens) break;
  }
  if (node != 0) match.replica = nodes_[node].last;
  return match;
}

std::uint32_t PromptTree::add(Node node) {
  if (free_.empty()) {
    nodes_.push_back(std::move(node));
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const std::uint32_t at = free_.back();
  free_.pop_back();
  nodes_[at] = std::move(node);
  return at;
}

// `node` keeps its first `tokens` tokens, a new child the rest and all that hangs on it.
void PromptTree::split(std::uint32_t node, std::uint64_t tokens) {
  TokenSequence all(nodes_[node].runs);
  Node rest;
  all.for_each_run(tokens, all.size(), [&](TokenRun run) { rest.runs.push_back(run); });
  all.truncate(tokens);
  rest.tokens = nodes_[node].tokens - tokens;
  rest.parent = node;
  rest.children = std::move(nodes_[node].children);
  rest.seen = nodes_[node].seen;
  rest.last = nodes_[node].last;
  const kvcache::TokenId first = rest.runs.front().first;
  const std::uint32_t child = add(std::move(rest));
  for (const auto& [token, grandchild] : nodes_[child].children) nodes_[grandchild].parent = child;
  Node& head = nodes_[node];
  head.runs.assign(all.runs().begin(), all.runs().end());
  head.tokens = tokens;
  head.children.clear();
  head.children.emplace(first, child);
}

void PromptTree::see(std::uint32_t node, std::size_t replica) {
  Node& seen = nodes_[node];
  seen.last = static_cast<std::uint32_t>(replica);
  const auto at = std::ranges::find(seen.seen, seen.last, &Seen::replica);
  if (at != seen.seen.end()) {
    at->epoch = epoch_;
    return;
  }
  seen.seen.push_back({seen.last, epoch_});
  sizes_[replica] += seen.tokens;
}

void PromptTree::insert(const TokenSequence& prompt, std::size_t replica) {
  ++epoch_;
  Cursor at;
  std::uint32_t node = 0;
  std::uint64_t done = 0;
  while (done < prompt.size()) {
    const kvcache::TokenId first = prompt.runs()[at.run].first + at.offset;
    const auto child = nodes_[node].children.find(first);
    if (child == nodes_[node].children.end()) {
      Node leaf;
      prompt.for_each_run(done, prompt.size(), [&](TokenRun run) { leaf.runs.push_back(run); });
      leaf.tokens = prompt.size() - done;
      leaf.parent = node;
      const std::uint32_t added = add(std::move(leaf));
      nodes_[node].children.emplace(first, added);
      see(added, replica);
      return;
    }
    node = child->second;
    const std::uint64_t shared = common(nodes_[node], prompt, at);
    if (shared < nodes_[node].tokens) split(node, shared);
    see(node, replica);
    done += shared;
  }
}

// Whether the replica saw the node and none of its children.
bool PromptTree::leaf_of(std::uint32_t node, std::uint32_t replica) const {
  const auto saw = [replica](const Node& one) {
    return std::ranges::find(one.seen, replica, &Seen::replica) != one.seen.end();
  };
  return node != 0 && saw(nodes_[node]) &&
         std::ranges::none_of(nodes_[node].children,
                              [&](const auto& child) { return saw(nodes_[child.second]); });
}

void PromptTree::forget(std::uint32_t node, std::uint32_t replica) {
  Node& forgotten = nodes_[node];
  sizes_[replica] -= forgotten.tokens;
  std::erase_if(forgotten.seen, [replica](const Seen& seen) { return seen.replica == replica; });
  if (!forgotten.seen.empty()) {
    if (forgotten.last == replica)
      forgotten.last = std::ranges::max_element(forgotten.seen, {}, &Seen::epoch)->replica;
    return;
  }
  if (!forgotten.children.empty()) return;
  nodes_[forgotten.parent].children.erase(forgotten.runs.front().first);
  forgotten = {};
  free_.push_back(node);
}

void PromptTree::evict(std::uint64_t tokens) {
  for (std::uint32_t replica = 0; replica < sizes_.size(); ++replica) shrink(replica, tokens);
}

void PromptTree::shrink(std::uint32_t replica, std::uint64_t tokens) {
  if (sizes_[replica] <= tokens) return;
  // Leaves by when the replica saw them, the latest first: the heap of std:: keeps the greatest on top.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> heap;
  const auto push = [&](std::uint32_t node) {
    if (!leaf_of(node, replica)) return;
    heap.emplace_back(std::ranges::find(nodes_[node].seen, replica, &Seen::replica)->epoch, node);
    std::ranges::push_heap(heap, std::greater<>());
  };
  for (std::uint32_t node = 1; node < nodes_.size(); ++node) push(node);
  while (sizes_[replica] > tokens && !heap.empty()) {
    std::ranges::pop_heap(heap, std::greater<>());
    const std::uint32_t node = heap.back().second;
    heap.pop_back();
    const std::uint32_t parent = nodes_[node].parent;
    forget(node, replica);
    push(parent);
  }
}

}  // namespace tpsim::scheduler
