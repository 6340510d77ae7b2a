// Collectives: what OperatorCosts says of them (rank/cost/op_cost.h).
#include <algorithm>

#include "rank/cost/op_cost.h"

namespace tpsim::rank {
namespace {

// What each GPU sends for a reduce-scatter and an all-gather.
double ring_sent(double bytes, std::uint32_t gpus) { return 2 * bytes * (gpus - 1) / gpus; }

}  // namespace

bool OperatorCosts::uses_custom_all_reduce(double bytes, std::uint32_t gpus) const {
  return gpus <= 8 && nodes(gpus) == 1 && gpus % 2 == 0 && bytes <= kCustomAllReduceLimit &&
         (nvlink_ || gpus == 2);
}

bool OperatorCosts::is_one_shot(double bytes, std::uint32_t gpus) {
  return gpus == 2 || bytes < (gpus <= 4 ? 512 : 256) * 1024.0;
}

double OperatorCosts::all_reduce_sent(double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return 0;
  if (uses_custom_all_reduce(bytes, gpus) && is_one_shot(bytes, gpus)) return bytes * (gpus - 1);
  if (const std::uint32_t count = nodes(gpus); count > 1)
    return ring_sent(bytes, gpus / count) + all_reduce_network(bytes, gpus);
  return ring_sent(bytes, gpus);
}

double OperatorCosts::sent(Collective kind, double bytes, std::uint32_t gpus) const {
  switch (kind) {
    case Collective::kCustomAllReduce:
      return all_reduce_sent(bytes, gpus);
    case Collective::kNcclAllReduce:
      return ring_sent(bytes, gpus);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return bytes * (gpus - 1) / gpus;
    case Collective::kDeepEp:
    case Collective::kDeepEpLowLatency:
      return bytes;
  }
  return bytes;
}

double OperatorCosts::collective_physics(Collective kind, double bytes, std::uint32_t gpus) const {
  const OperatorCoefficients& c = collectives_[static_cast<std::size_t>(kind)].coefficients;
  const bool barrier = kind == Collective::kCustomAllReduce && !is_one_shot(bytes, gpus);
  const double slowed = gpus > 2 ? 1 + c.shared_link * (gpus - 2) : 1;
  return c.fixed_seconds + (barrier ? c.two_shot_seconds : 0) + c.per_gpu_seconds * gpus +
         sent(kind, bytes, gpus) / (link_ * c.memory) * slowed;
}

double OperatorCosts::collective_seconds(Collective kind, double bytes, std::uint32_t gpus) const {
  const PricedClass& priced = collectives_[static_cast<std::size_t>(kind)];
  if (priced.corrections.empty()) return collective_physics(kind, bytes, gpus);
  const auto corrected = [&](double size) {
    const double features[] = {size, static_cast<double>(gpus)};
    return collective_physics(kind, size, gpus) * priced.corrections.factor(features);
  };
  // Matrix classes have n where this has a number none of them has.
  const MonotonePrice& price =
      prices_.of({static_cast<std::uint64_t>(kind), ~std::uint64_t{0}, gpus}, priced.points, corrected);
  // Not what the algorithm sends, but what any has to: a switch that adds up itself (NVLS) saves half.
  const double least = kind == Collective::kDeepEp || kind == Collective::kDeepEpLowLatency
                           ? bytes
                           : bytes * (gpus - 1) / gpus;
  return std::max(price(bytes, corrected(bytes)), least / link_);
}

KernelCost OperatorCosts::custom_all_reduce(double bytes, std::uint32_t gpus) const {
  return {collective_seconds(Collective::kCustomAllReduce, bytes, gpus), 0, 2 * bytes, 1};
}

KernelCost OperatorCosts::nccl_all_reduce(double bytes, std::uint32_t gpus) const {
  if (const std::uint32_t count = nodes(gpus); count > 1) {
    const double within = nccl_all_reduce(bytes, gpus / count).seconds;
    return {across_nodes(within, all_reduce_network(bytes, gpus), count), 0, 2 * bytes, 1};
  }
  if (gpus <= 1) return {};
  return {collective_seconds(Collective::kNcclAllReduce, bytes, gpus), 0, 2 * bytes, 1};
}

KernelCost OperatorCosts::all_reduce(double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return {};
  return uses_custom_all_reduce(bytes, gpus) ? custom_all_reduce(bytes, gpus) : nccl_all_reduce(bytes, gpus);
}

KernelCost OperatorCosts::gathered(Collective kind, double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return {};
  const std::uint32_t count = nodes(gpus);
  if (count == 1) return {collective_seconds(kind, bytes, gpus), 0, bytes, 1};
  // All but what the node's own ranks began with comes in over the NICs and is shared out inside.
  const std::uint32_t own = gpus / count;
  const double within = own > 1 ? collective_seconds(kind, bytes, own) : 0;
  return {across_nodes(within, gather_network(bytes, gpus), count), 0, bytes, 1};
}

KernelCost OperatorCosts::all_gather(double bytes_per_gpu, std::uint32_t gpus) const {
  return gathered(Collective::kAllGather, bytes_per_gpu * gpus, gpus);
}

KernelCost OperatorCosts::reduce_scatter(double bytes, std::uint32_t gpus) const {
  return gathered(Collective::kReduceScatter, bytes, gpus);
}

KernelCost OperatorCosts::all_to_all(double bytes, std::uint32_t gpus) const {
  if (gpus <= 1) return {};
  if (const std::uint32_t count = nodes(gpus); count > 1) {
    const std::uint32_t own = gpus / count;
    const double within = own > 1 ? collective_seconds(Collective::kAllToAll, bytes / count, own) : 0;
    return {across_nodes(within, bytes * (gpus - own) / gpus, count), 0, bytes, 1};
  }
  return {collective_seconds(Collective::kAllToAll, bytes, gpus), 0, bytes, 1};
}

KernelCost OperatorCosts::send(double bytes) const {
  return {collective_seconds(Collective::kAllToAll, 2 * bytes, 2), 0, bytes, 1};
}

KernelCost OperatorCosts::expert_exchange(double bytes, bool low_latency) const {
  const Collective kind = low_latency ? Collective::kDeepEpLowLatency : Collective::kDeepEp;
  return {collective_seconds(kind, bytes, 1), 0, 2 * bytes, low_latency ? 2U : 3U};
}

}  // namespace tpsim::rank
