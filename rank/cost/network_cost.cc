// Collectives of several nodes: what OperatorCosts says of them (rank/cost/op_cost.h).
//
// NCCL reduces inside a node over NVLink, between nodes over as many NICs as the node has GPUs, and hands the
// sum out inside again, chunk by chunk: the slower of both levels shows, the other while chunks fill the
// pipe. Constants are fitted to all_reduce_perf of NCCL 2.30.4 on two nodes of 8 H200s, each with 8
// BlueField-3 of 400 Gb/s (a public guide to H200 nodes on OpenShift;
// tests/unit/rank/cost/network_cost_test.cc has the table). Others' two nodes of 8 H100s with 400 Gb/s reach
// 80 % of that (nccl-operator's 389 GB/s of bus bandwidth) or half (NVIDIA/nccl issue 2409: 216 to 231 GB/s).
#include <algorithm>
#include <bit>

#include "rank/cost/op_cost.h"

namespace tpsim::rank {
namespace {

// Of the NIC's rate: NVIDIA's own "46 to 48 GB/s per NIC" of 400 Gb/s (NVIDIA/nccl-tests issue 290).
constexpr double kShare = 0.92;
// Of the quicker level's time, what shows, and the most of it.
constexpr double kFill = 0.45, kMostFillSeconds = 170e-6;
// Bytes for each NIC from which a message takes the latency twice: NCCL's protocols for bandwidth wait for
// the other side, the one for latency (LL) does not.
constexpr double kHandshakeBytes = 4096;
// What each doubling of the nodes beyond two adds, of the first one's latency: 62 us on 16 nodes of 8 H100s
// (NVIDIA/nccl issue 1469) against 44 us on two.
constexpr double kDoubling = 0.25;
// DeepEP's first figures (README.md of version 1; H800, 400 Gb/s): kernels for throughput move 43 to 47 GB/s
// on 16 to 64 ranks, a token counted once for each node, its own too.
constexpr double kThroughputShare = 0.9;
// Its kernels for low latency (docs/legacy.md), 128 tokens of 7,168, 8 experts each: 118 us on 16 ranks, 155,
// 173, 192 and 194 on 32 to 256 to dispatch, 195, 273, 314, 369 and 360 to combine; what leaves the node at
// 50 GB/s and this are within 12 % of all of them. Over Amazon's EFA, 400 Gb/s too, they take 1.5 to 3 times
// as long (226 and 465 us to dispatch on 16 and 32 H200s).
constexpr double kLowLatencySeconds = 45e-6;

}  // namespace

std::uint32_t OperatorCosts::nodes(std::uint32_t gpus) const {
  if (profile_.network().bandwidth() == 0) return 1;
  return std::max(1U, (gpus + node_gpus_ - 1) / node_gpus_);
}

double OperatorCosts::all_reduce_network(double bytes, std::uint32_t gpus) const {
  return 2 * gather_network(bytes, gpus);
}

double OperatorCosts::gather_network(double bytes, std::uint32_t gpus) const {
  const std::uint32_t count = nodes(gpus);
  return count > 1 ? bytes * (count - 1) / gpus : 0;
}

double OperatorCosts::across_nodes(double within, double network, std::uint32_t nodes) const {
  const double between = network / (profile_.network().bandwidth() * kShare);
  const double doublings = std::bit_width(nodes - 1) - 1;
  const double waits = 1 + std::min(1.0, network / kHandshakeBytes);
  return profile_.network().latency_seconds() * waits * (1 + kDoubling * doublings) +
         std::max(within, between) + std::min(kFill * std::min(within, between), kMostFillSeconds);
}

KernelCost OperatorCosts::network_send(double bytes) const {
  return {across_nodes(0, bytes, 2), 0, bytes, 1};
}

KernelCost OperatorCosts::expert_exchange(double bytes, double network, std::uint32_t nodes,
                                          bool low_latency) const {
  KernelCost cost = expert_exchange(bytes, low_latency);
  if (nodes == 1) return cost;
  const double line = profile_.network().bandwidth();
  const double between = low_latency ? kLowLatencySeconds + network / line
                                     : profile_.network().latency_seconds() +
                                           network * nodes / (nodes - 1) / (line * kThroughputShare);
  cost.seconds = std::max(cost.seconds, between);
  return cost;
}

}  // namespace tpsim::rank
