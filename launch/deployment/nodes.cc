#include "launch/deployment/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "proto/base/error.h"
#include "rank/cost/hardware.h"

namespace tpsim::launch {
namespace {

// SGLang gives a node whole stages, or a stage whole nodes.
bool divides(std::uint32_t nodes, std::uint32_t tp, std::uint32_t pp) {
  return nodes <= pp ? pp % nodes == 0 : nodes % pp == 0 && tp % (nodes / pp) == 0;
}

std::string flags_of(const ServerArgs& args) {
  return args.parallel.pp_size > 1 ? fmt::format("--tp {} --pp-size {}", args.tp_size, args.parallel.pp_size)
                                   : fmt::format("--tp {}", args.tp_size);
}

}  // namespace

std::uint32_t nodes_of(const ServerArgs& args, const proto::HardwareProfile& hardware) {
  const std::uint32_t tp = args.tp_size, pp = args.parallel.pp_size;
  if (args.numeric()) {
    if (args.parallel.nnodes.value_or(1) > 1)
      throw_user_error("--nnodes {}: is for --executor modeled, numeric ranks send no network's messages",
                       *args.parallel.nnodes);
    return 1;
  }
  const std::uint32_t room = rank::gpus_of_node(hardware);
  if (const auto asked = args.parallel.nnodes) {
    if (!divides(*asked, tp, pp))
      throw_user_error("--nnodes {}: does not share out the ranks of {}; use a number that does", *asked,
                       flags_of(args));
    if (tp * pp / *asked > room)
      throw_user_error("--nnodes {}: {} are {} GPUs a node, and {} of {} are one node; use at least {} nodes",
                       *asked, flags_of(args), tp * pp / *asked, room, hardware.name(),
                       (tp * pp + room - 1) / room);
  }
  std::uint32_t nodes = args.parallel.nnodes.value_or((tp * pp + room - 1) / room);
  while (!divides(nodes, tp, pp)) ++nodes;  // at the latest, one for each GPU
  if (nodes == 1) return 1;
  if (args.parallel.replicas() > 1)
    throw_user_error(
        "--dp-size {}: {} stand on {} nodes, over which SGLang has no replicas; use --attn-dp-size, or a "
        "--fleet of such servers",
        args.parallel.replicas(), flags_of(args), nodes);
  if (hardware.network().bandwidth() == 0)
    throw_user_error(
        "{}: {} of {} are one node, and its file states no network between nodes; add \"network\" to a "
        "file of your own (--hardware FILE.json), or use at most {} GPUs",
        flags_of(args), room, hardware.name(), room);
  return nodes;
}

void place_on_nodes(const ServerArgs& args, proto::HardwareProfile& hardware, Parallel& parallel) {
  const std::uint32_t nodes = nodes_of(args, hardware);
  if (nodes == 1) return;
  const std::uint32_t pp = args.parallel.pp_size;
  parallel.layout.nodes = nodes;
  parallel.layout.stages_of_node = std::max(pp / nodes, 1U);
  hardware.set_gpus_per_node(args.tp_size / std::max(nodes / pp, 1U));
  say(parallel.notes,
      "--nnodes {}: {} GPUs a node, joined by a network of {:.0f} GB/s a GPU ({}); no server over several "
      "nodes was measured",
      nodes, args.tp_size * pp / nodes, hardware.network().bandwidth() / 1e9, hardware.network().source());
}

}  // namespace tpsim::launch
