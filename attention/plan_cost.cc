#include "attention/plan_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace tpsim::attention {
namespace {

using Field = std::pair<const char*, double PlanCoefficients::*>;
constexpr std::array<Field, 12> kParameters = {{{"block_seconds", &PlanCoefficients::block_seconds},
                                                {"block_memory", &PlanCoefficients::block_memory},
                                                {"overlap", &PlanCoefficients::overlap},
                                                {"tail", &PlanCoefficients::tail},
                                                {"merge_seconds", &PlanCoefficients::merge_seconds},
                                                {"head_dim_64", &PlanCoefficients::head_dim_64},
                                                {"head_dim_192", &PlanCoefficients::head_dim_192},
                                                {"head_dim_256", &PlanCoefficients::head_dim_256},
                                                {"fp8_kv", &PlanCoefficients::fp8_kv},
                                                {"fp8_compute", &PlanCoefficients::fp8_compute},
                                                {"window", &PlanCoefficients::window},
                                                {"l2_memory", &PlanCoefficients::l2_memory}}};

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

TileRange tile_range(const ExtendPlan& plan, const ExtendItem& item, std::uint32_t row,
                     std::uint32_t window) {
  const std::uint32_t end = item.prefix + std::min(row + plan.tile_m, item.q_len);
  const std::uint32_t first = item.prefix + row + 1;
  const std::uint32_t begin = window != 0 && first > window ? first - window : 0;
  return {begin / plan.tile_n * plan.tile_n, ceil_div(end, plan.tile_n) * plan.tile_n};
}

PlanCoefficients coefficients_of(const proto::HardwareProfile& profile, const std::string& operator_class) {
  PlanCoefficients c;
  for (const proto::OperatorEfficiency& entry : profile.efficiencies()) {
    if (entry.operator_class() != operator_class) continue;
    c.compute = entry.compute();
    c.memory = entry.memory();
    c.fixed_seconds = entry.fixed_seconds();
    c.calibrated = !entry.source().empty();
    for (const auto& [name, member] : kParameters) {
      const auto found = entry.parameters().find(name);
      if (found != entry.parameters().end()) c.*member = found->second;
    }
    break;
  }
  return c;
}

void write_coefficients(const PlanCoefficients& c, proto::OperatorEfficiency& out) {
  out.set_compute(c.compute);
  out.set_memory(c.memory);
  out.set_fixed_seconds(c.fixed_seconds);
  for (const auto& [name, member] : kParameters) (*out.mutable_parameters())[name] = c.*member;
}

PlanCost::PlanCost(const proto::HardwareProfile& profile, const PlanCoefficients& coefficients,
                   Residency residency)
    : c_(coefficients),
      bf16_flops_(profile.dense_flops_bf16()),
      fp8_flops_(profile.dense_flops_fp8() > 0 ? profile.dense_flops_fp8() : profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()),
      multiprocessors_(profile.multiprocessors()),
      hot_bytes_(residency == Residency::kHot ? profile.l2_bytes() : 0) {}

double PlanCost::flops_per_second(const LayerShape& layer) const {
  double rate = c_.compute * (layer.q_bytes == 1 ? fp8_flops_ * c_.fp8_compute : bf16_flops_);
  if (layer.head_dim <= 64) {
    rate *= c_.head_dim_64;
  } else if (layer.head_dim > 192) {
    rate *= c_.head_dim_256;
  } else if (layer.head_dim > 128) {
    rate *= c_.head_dim_192;
  }
  return rate;
}

double PlanCost::bytes_per_second(const LayerShape& layer, double bytes) const {
  const double rate = bandwidth_ * c_.memory * (layer.kv_bytes == 1 ? c_.fp8_kv : 1);
  return bytes < hot_bytes_ ? rate * c_.l2_memory : rate;
}

KernelCost PlanCost::decode(const DecodePlan& plan, const LayerShape& layer) const {
  KernelCost cost;
  if (plan.items.empty()) return cost;
  const double kv_token_bytes = double(layer.head_dim + layer.v_head_dim) * layer.kv_bytes;  // of one KV head
  double tokens = 0;
  double blocks = 0;
  double parts = 0;
  std::uint32_t longest = 0;  // tokens of one part
  for (const DecodeItem& item : plan.items) {
    tokens += item.kv_end - item.kv_begin;
    parts += item.splits;
    longest = std::max(longest, item.split_tokens);
  }
  blocks = parts * plan.blocks_per_split;
  const double requests = static_cast<double>(plan.items.size());
  const double qo_bytes =
      requests * layer.num_q_heads * double(layer.head_dim + layer.v_head_dim) * layer.q_bytes;
  cost.bytes = tokens * layer.num_kv_heads * kv_token_bytes + qo_bytes;
  cost.flops = 2.0 * tokens * layer.num_q_heads * double(layer.head_dim + layer.v_head_dim);
  cost.launches = 1;

  const double device = cost.bytes / bytes_per_second(layer, cost.bytes);
  const double block =
      longest * kv_token_bytes / (bytes_per_second(layer, cost.bytes) / multiprocessors_ * c_.block_memory);
  const double arithmetic = cost.flops / flops_per_second(layer);
  const double most = std::max({device, block, arithmetic});
  const double waves = std::ceil(blocks / multiprocessors_);
  cost.seconds =
      c_.fixed_seconds + waves * c_.block_seconds + most + c_.overlap * (device + block + arithmetic - most);
  if (plan.merge && parts > requests) {
    // Parts are written and read again in fp32, with one log-sum-exp each.
    const double merge_bytes = 2 * parts * layer.num_q_heads * (layer.v_head_dim + 1) * 4.0;
    cost.bytes += merge_bytes;
    cost.seconds += c_.merge_seconds + merge_bytes / bytes_per_second(layer, cost.bytes);
    ++cost.launches;
  }
  if (layer.sliding_window != 0) cost.seconds *= c_.window;
  return cost;
}

KernelCost PlanCost::extend(const ExtendPlan& plan, const LayerShape& layer) const {
  KernelCost cost;
  if (plan.items.empty()) return cost;
  const double width = double(layer.head_dim + layer.v_head_dim);
  double tile_tokens = 0;  // KV tokens over all tiles of one head
  double tiles = 0;
  double kv_read = 0;
  double q_tokens = 0;
  std::uint32_t longest = 0;
  for (const ExtendItem& item : plan.items) {
    for (std::uint32_t row = 0; row < item.q_len; row += plan.tile_m) {
      const TileRange range = tile_range(plan, item, row, layer.sliding_window);
      tile_tokens += range.end - range.begin;
      longest = std::max(longest, range.end - range.begin);
      ++tiles;
    }
    kv_read += item.prefix + item.q_len;
    q_tokens += item.q_len;
  }
  const double rate = flops_per_second(layer);
  const double tile_flops = 2.0 * plan.rows * width;  // per KV token of one tile
  const double columns = std::ceil(double(layer.num_q_heads) / plan.packed_heads);
  cost.flops = tile_tokens * columns * tile_flops;
  // K and V are read at least once; tiles of one head share them through L2.
  cost.bytes = kv_read * layer.num_kv_heads * width * layer.kv_bytes +
               q_tokens * layer.num_q_heads * width * layer.q_bytes;
  cost.launches = 1;
  const double sm_rate = rate / multiprocessors_;
  const double blocks = tiles * columns * plan.splits;
  const double shared = cost.flops / rate + blocks * c_.block_seconds / multiprocessors_;
  const double longest_tile = longest / double(plan.splits) * tile_flops / sm_rate + c_.block_seconds;
  // With fewer blocks than multiprocessors the longest alone decides.
  const double arithmetic = std::max(shared, longest_tile) + c_.tail * std::min(shared, longest_tile);
  const double device = cost.bytes / bytes_per_second(layer, cost.bytes);
  cost.seconds = c_.fixed_seconds + std::max(arithmetic, device) + c_.overlap * std::min(arithmetic, device);
  if (plan.splits > 1) {
    const double merge_bytes =
        2.0 * plan.splits * q_tokens * layer.num_q_heads * (layer.v_head_dim + 1) * 4.0;
    cost.bytes += merge_bytes;
    cost.seconds += c_.merge_seconds + merge_bytes / bytes_per_second(layer, cost.bytes);
    ++cost.launches;
  }
  if (layer.sliding_window != 0) cost.seconds *= c_.window;
  return cost;
}

}  // namespace tpsim::attention
