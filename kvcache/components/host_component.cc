#include "kvcache/components/host_component.h"

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

namespace tpsim::kvcache {

HostComponent::Place& HostComponent::place(NodeId node) {
  if (node >= places_.size()) places_.resize(std::size_t{node} + 1);
  return places_[node];
}

void HostComponent::on_link(NodeId parent, NodeId child, bool on_device) {
  place(child) = {.evicted = !on_device};
  if (on_device) ++place(parent).children_on_device;
}

void HostComponent::on_unlink(NodeId parent, NodeId child) {
  if (!evicted(child)) --places_[parent].children_on_device;
  places_[child] = {};
}

void HostComponent::set_evicted(const Tree& tree, NodeId node, bool evicted) {
  place(node).evicted = evicted;
  Place& parent = place(tree.parent(node));
  parent.children_on_device += evicted ? -1U : 1U;
}

void HostComponent::back_up(const Tree& tree, NodeId node) {
  put(tree, node);
  if (numbers_) numbers_->take(node, tree.length(node) / page_size_);
  ++place(tree.parent(node)).children_with_copy;
}

void HostComponent::give_back(const Tree& tree, NodeId node) {
  --place(tree.parent(node)).children_with_copy;
  if (numbers_) numbers_->give_back(node);
}

TreeComponent::NodeId HostComponent::usable(const Tree& tree, NodeId end) const {
  while (evicted(end)) end = tree.parent(end);
  return end;
}

// Storage goes on with the lower half alone, as SGLang's host_ref_counter has it.
void HostComponent::on_split(const Tree& tree, NodeId upper, NodeId lower) {
  share(upper, lower);
  if (numbers_) numbers_->split(upper, lower, tree.length(upper) / page_size_);
  while (locks(upper) > 0) unlock_node(tree, upper);
  const bool gone = evicted(lower);
  place(upper) = {
      .children_on_device = gone ? 0U : 1U, .children_with_copy = has(lower) ? 1U : 0U, .evicted = gone};
}

void HostComponent::check_place(NodeId node, const std::vector<NodeId>& children) const {
  std::uint32_t on_device = 0, with_copy = 0;
  for (const NodeId child : children) {
    on_device += evicted(child) ? 0 : 1;
    with_copy += has(child) ? 1 : 0;
    if (!evicted(child) && evicted(node))
      throw std::logic_error(fmt::format("radix node {}: is on the device below one that is not", child));
    if (evicted(child) && !has(child))
      throw std::logic_error(
          fmt::format("radix node {}: is neither on the device nor in host memory", child));
  }
  const Place known = node < places_.size() ? places_[node] : Place{};
  if (known.children_on_device != on_device || known.children_with_copy != with_copy)
    throw std::logic_error(
        fmt::format("radix node {}: {} children on the device and {} with a copy counted, {} and {} found",
                    node, known.children_on_device, known.children_with_copy, on_device, with_copy));
}

}  // namespace tpsim::kvcache
