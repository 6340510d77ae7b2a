// What a component sees of the tree whose nodes it has data for.
#pragma once

#include <cstdint>
#include <span>

#include "kvcache/pools/page_run.h"

namespace tpsim::kvcache {

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

}  // namespace tpsim::kvcache
