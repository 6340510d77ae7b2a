#include "attention/plan_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/ceil_div.h"

namespace tpsim::attention {
namespace {

// A working set up to this share of L2 stays there; from kL2Gone on, least-recent eviction keeps nothing.
constexpr double kL2Kept = 0.7;
constexpr double kL2Gone = 1.5;

constexpr std::uint32_t kNarrow = 64;  // heads up to here have coefficients of their own
constexpr double kUsualHead = 128;
constexpr double kUsualHeadBytes = 2 * kUsualHead * 2;

double share_gone(double bytes, double l2_bytes) {
  return std::clamp((bytes / l2_bytes - kL2Kept) / (kL2Gone - kL2Kept), 0.0, 1.0);
}

// Of what is read of one token.
double kv_token_bytes_of(const LayerShape& layer) { return layer.kv_elements() * layer.kv_bytes(); }

// What the kernel itself reads.
LayerShape read_shape(const LayerShape& stored, bool widened) {
  LayerShape shape = stored;
  if (widened) shape.kv_format = NumberFormat::kBf16;
  return shape;
}

// The kernel widens the KV cache before it multiplies.
bool converts(const LayerShape& layer) { return layer.q_bytes != 1 && layer.kv_bytes() < 2; }

}  // namespace

PlanCost::PlanCost(const proto::HardwareProfile& profile, const PlanCoefficients& coefficients,
                   Residency residency, Corrections corrections)
    : c_(coefficients),
      corrections_(std::move(corrections)),
      bf16_flops_(profile.dense_flops_bf16()),
      fp8_flops_(profile.dense_flops_fp8() > 0 ? profile.dense_flops_fp8() : profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()),
      multiprocessors_(profile.multiprocessors()),
      l2_bytes_(profile.l2_bytes()),
      hot_bytes_(residency == Residency::kHot ? profile.l2_bytes() : 0) {}

PlanCost::PlanCost(const proto::HardwareProfile& profile, std::string_view operator_class,
                   Residency residency)
    : PlanCost(profile, coefficients_of<PlanCoefficients>(profile, operator_class), residency,
               Corrections(find_efficiency(profile, operator_class), kPlanFeatures)) {}

double PlanCost::flops_per_second(const LayerShape& layer) const {
  double rate = c_.compute * (layer.q_bytes == 1 ? fp8_flops_ * c_.fp8_compute : bf16_flops_);
  if (converts(layer)) rate *= c_.fp8_convert;
  if (layer.head_dim <= kNarrow) {
    rate *= c_.head_dim_64;
  } else if (layer.head_dim > 256) {
    rate *= c_.head_dim_512;
  } else if (layer.head_dim > 192) {
    rate *= c_.head_dim_256;
  } else if (layer.head_dim > 128) {
    rate *= c_.head_dim_192;
  }
  return rate;
}

double PlanCost::block_compute(const LayerShape& layer) const {
  return c_.block_compute * (layer.head_dim <= kNarrow ? c_.block_compute_64 : 1);
}

double PlanCost::memory_seconds(double bytes, const LayerShape& layer) const {
  const double rate = bandwidth_ * c_.memory * (converts(layer) ? c_.fp8_kv : 1);
  if (hot_bytes_ <= 0) return bytes / rate;
  const double missed = share_gone(bytes, hot_bytes_);
  return bytes * (missed + (1 - missed) / c_.l2_memory) / rate;
}

double PlanCost::special_seconds(const LayerShape& layer) const {
  return (layer.sliding_window != 0 ? c_.window_seconds : 0) +
         (layer.head_dim > 128 && layer.head_dim <= 192 ? c_.head_dim_192_seconds : 0);
}

double PlanCost::write_seconds(double tokens, const LayerShape& layer) const {
  const double kv = double(layer.num_kv_heads) * (layer.head_dim + layer.v_head_dim);
  double seconds = hot_bytes_ > 0 ? c_.hot_seconds : 0;
  if (hot_bytes_ > 0 && c_.write > 0) {
    seconds += memory_seconds(tokens * kv * (layer.fp8_kv() ? 2 : 4), layer) * c_.write;
  }
  if (layer.fp8_kv()) {
    const double q = double(layer.num_q_heads) * layer.head_dim;
    seconds += c_.fp8_seconds + memory_seconds(tokens * (q + kv) * 3, layer) * c_.cast;
  }
  return seconds;
}

KernelCost PlanCost::gather(double bytes, const LayerShape& layer) const {
  return {.seconds = memory_seconds(bytes, layer) / c_.gather, .bytes = bytes};
}

template <typename Batch>
PlanFeatures PlanCost::features_of(const Batch& batch, const LayerShape& layer,
                                   const Occupancy& occupancy) const {
  PlanFeatures features = plan_features(batch, layer);
  features.blocks = occupancy.blocks;
  features.part = occupancy.part;
  features.l2_fill = hot_bytes_ > 0 ? least_work(batch, layer).bytes / hot_bytes_ : kNothingHeld;
  return features;
}

template <typename Batch>
KernelCost PlanCost::corrected(KernelCost cost, const Batch& batch, const LayerShape& stored,
                               const Occupancy& occupancy) const {
  if (corrections_.empty()) return cost;
  cost.seconds *= corrections_.factor(features_of(batch, stored, occupancy).values());
  const PlanWork work = least_work(batch, stored);
  cost.seconds = std::max(cost.seconds, work.flops / (stored.q_bytes == 1 ? fp8_flops_ : bf16_flops_));
  if (hot_bytes_ <= 0) cost.seconds = std::max(cost.seconds, work.bytes / bandwidth_);
  return cost;
}

KernelCost PlanCost::decode(const DecodePlan& plan, const LayerShape& stored) const {
  const DecodeTotals totals = decode_totals(plan);
  if (totals.requests == 0) return {};
  Occupancy occupancy;
  const KernelCost cost = decode_physics(plan, totals, stored, occupancy);
  return corrected(cost, totals, stored, occupancy);
}

KernelCost PlanCost::extend(const ExtendPlan& plan, const LayerShape& stored) const {
  if (plan.items.empty()) return {};
  Occupancy occupancy;
  const KernelCost cost = extend_physics(plan, stored, occupancy);
  return corrected(cost, plan, stored, occupancy);
}

PlanFeatures PlanCost::features(const DecodePlan& plan, const LayerShape& stored) const {
  Occupancy occupancy;
  const DecodeTotals totals = decode_totals(plan);
  decode_physics(plan, totals, stored, occupancy);
  return features_of(totals, stored, occupancy);
}

PlanFeatures PlanCost::features(const ExtendPlan& plan, const LayerShape& stored) const {
  Occupancy occupancy;
  extend_physics(plan, stored, occupancy);
  return features_of(plan, stored, occupancy);
}

// REQUIRES: the plan has items.
KernelCost PlanCost::decode_physics(const DecodePlan& plan, const DecodeTotals& totals,
                                    const LayerShape& stored, Occupancy& occupancy) const {
  const LayerShape layer = read_shape(stored, plan.widens_kv);
  KernelCost cost;
  const double width = double(layer.head_dim) + layer.v_head_dim;
  const std::uint64_t tokens = totals.tokens;
  const std::uint64_t parts = totals.parts;
  // Tokens of one part, or of all parts of one persistent block.
  const std::uint64_t longest = plan.busiest_block != 0 ? plan.busiest_block : totals.longest_part;
  const double blocks = double(parts) * plan.blocks_per_split;
  const double requests = static_cast<double>(totals.requests);
  const double kv_bytes = double(tokens) * kv_token_bytes_of(layer);
  const double qo_bytes = requests * layer.num_q_heads * width * layer.q_bytes;
  cost.bytes = kv_bytes + qo_bytes;
  cost.flops = 2.0 * double(tokens) * plan.blocks_per_split * plan.rows * width;
  cost.launches = 1;

  const double rate = flops_per_second(layer) * (plan.tensor_cores ? 1 : c_.vector_compute);
  double device = memory_seconds(cost.bytes, layer);
  if (plan.reads > 1) {
    const double again =
        (plan.reads - 1) * share_gone(kv_bytes * requests / double(parts), l2_bytes_) * kv_bytes;
    cost.bytes += again;
    device += again / (bandwidth_ * c_.memory);
  }
  const double launched =
      plan.launched_splits != 0 ? requests * plan.launched_splits * plan.blocks_per_split : blocks;
  // A profile that does not know how many find room knows no queue. `resident` is of heads of 128 there:
  // wider ones need more room each.
  const bool queues = plan.queues && c_.resident > 1;
  const double resident = queues ? c_.resident * kUsualHead / layer.head_dim : c_.resident;
  const double room = multiprocessors_ * std::clamp(resident, 1.0, static_cast<double>(plan.resident));
  // One block alone: its stream of KV and its arithmetic, at one multiprocessor's share of the device. One
  // that waits for others to end began when those before it were through, and waits at each step of its loop
  // for memory to answer, whatever the width of heads, as long as for a head's bytes.
  const double before = queues ? std::floor((blocks - 1) / room) : 0;
  const double walked = double(longest) + before * double(tokens) / double(parts);
  const double head_bytes = kv_token_bytes_of(layer) / layer.num_kv_heads;
  const double part_bytes = walked * (queues ? (kUsualHeadBytes + head_bytes) / 2 : head_bytes);
  const double stream = device / cost.bytes * part_bytes * multiprocessors_ / c_.block_memory;
  const double block =
      std::max(stream, 2.0 * walked * plan.rows * width / (rate / multiprocessors_ * block_compute(layer)));
  const double arithmetic = cost.flops / rate;
  const double most = std::max({device, block, arithmetic});
  occupancy = {launched / multiprocessors_, static_cast<double>(longest)};
  const double waves = plan.busiest_block != 0 ? 1 : std::ceil(launched / room);
  const double block_seconds = c_.block_seconds + c_.block_width_seconds * width * layer.kv_bytes() / 1024;
  cost.seconds =
      c_.fixed_seconds + waves * block_seconds + most + c_.overlap * (device + block + arithmetic - most);
  if (plan.merge) {
    // Parts are written and read again in fp32, with one log-sum-exp each.
    const double merge_bytes = 2 * double(parts) * layer.num_q_heads * (layer.v_head_dim + 1) * 4.0;
    cost.bytes += merge_bytes;
    cost.seconds +=
        c_.merge_seconds + totals.most_parts * c_.merge_part_seconds + memory_seconds(merge_bytes, layer);
    if (!plan.merge_in_kernel) ++cost.launches;
  }
  if (plan.widens_kv) {
    cost += gather(double(tokens) * (kv_token_bytes_of(stored) + kv_token_bytes_of(layer)), layer);
    cost.seconds += c_.fp8_seconds;
    ++cost.launches;
  }
  if (layer.sliding_window != 0) cost.seconds *= c_.window * (layer.head_dim <= kNarrow ? c_.window_64 : 1);
  cost.seconds += write_seconds(requests, layer) + special_seconds(layer);
  return cost;
}

struct PlanCost::Load {
  double tokens = 0;   // KV tokens over all tiles of one head block
  double tiles = 0;    // of one head block
  double longest = 0;  // KV tokens of the longest tile
  double late = 0;     // the most of KV tokens of all requests before one, over all head blocks, and of that
                       // one's longest tile alone, in tokens that the device does in its time
  double rows = 0;     // query rows of a tile
  double head_blocks = 0;
  double bytes = 0;
};

double PlanCost::tiles_seconds(const Load& load, const LayerShape& layer, double rate) const {
  const double width = double(layer.head_dim) + layer.v_head_dim;
  const double per_token = 2.0 * load.rows * width;
  const double blocks = load.tiles * load.head_blocks;
  const double shared =
      load.tokens * load.head_blocks * per_token / rate + blocks * c_.block_seconds / multiprocessors_;
  const double longest =
      load.longest * per_token * multiprocessors_ / (rate * block_compute(layer)) + c_.block_seconds;
  // With fewer tiles than multiprocessors the longest tile alone decides.
  const double waves = blocks / multiprocessors_;
  const double even = std::max(shared, longest);
  const double late = load.late * per_token / rate + c_.block_seconds;
  const double arithmetic =
      even + c_.in_order * std::clamp(waves - 1, 0.0, 1.0) * std::max(0.0, late - even) +
      c_.tail * (1 - c_.wave_tail * std::min(1.0, 1 / waves)) * std::min(shared, longest);
  const double device = memory_seconds(load.bytes, layer);
  return std::max(arithmetic, device) + c_.overlap * std::min(arithmetic, device);
}

KernelCost PlanCost::kernel(const Load& load, const LayerShape& layer, double rate) const {
  const double width = double(layer.head_dim) + layer.v_head_dim;
  return {.seconds = c_.fixed_seconds + tiles_seconds(load, layer, rate),
          .flops = 2.0 * width * load.tokens * load.rows * load.head_blocks,
          .bytes = load.bytes,
          .launches = 1};
}

KernelCost PlanCost::extend_all(const ExtendPlan& plan, std::uint32_t q_len, std::uint32_t kv_len,
                                const LayerShape& layer) const {
  const double width = double(layer.head_dim) + layer.v_head_dim;
  Load load;
  load.rows = plan.rows;
  load.head_blocks = plan.head_blocks;
  load.tiles = ceil_div(q_len, plan.tile_m);
  load.longest = ceil_div(kv_len, plan.tile_n) * plan.tile_n;
  load.tokens = load.tiles * load.longest;
  load.bytes =
      double(kv_len) * kv_token_bytes_of(layer) + double(q_len) * layer.num_q_heads * width * layer.q_bytes;
  return kernel(load, layer, flops_per_second(layer));
}

KernelCost PlanCost::encode(const ExtendPlan& plan, std::span<const SequenceGroup> sequences,
                            const LayerShape& layer) const {
  const double width = double(layer.head_dim) + layer.v_head_dim;
  const double token_bytes = kv_token_bytes_of(layer) + layer.num_q_heads * width * layer.q_bytes;
  Load load;
  load.rows = plan.rows;
  load.head_blocks = plan.head_blocks;
  for (const SequenceGroup& group : sequences) {
    const double tiles = ceil_div(group.length, plan.tile_m);
    const double walked = double(ceil_div(group.length, plan.tile_n)) * plan.tile_n;
    load.tiles += group.count * tiles;
    load.tokens += group.count * tiles * walked;
    load.longest = std::max(load.longest, walked);
    load.bytes += double(group.count) * group.length * token_bytes;
  }
  return load.tiles == 0 ? KernelCost{} : kernel(load, layer, flops_per_second(layer));
}

// REQUIRES: the plan has items.
KernelCost PlanCost::extend_physics(const ExtendPlan& plan, const LayerShape& stored,
                                    Occupancy& occupancy) const {
  const LayerShape layer = read_shape(stored, plan.widens_kv);
  KernelCost cost;
  const double width = double(layer.head_dim) + layer.v_head_dim;
  const std::uint32_t window = plan.walks_window ? 0 : layer.sliding_window;
  const double kv_token_bytes = kv_token_bytes_of(layer);
  const double cached = c_.cached * (layer.head_dim <= kNarrow ? c_.cached_64 : 1);
  // Of a step over new tokens, that of any other taken off.
  const double slower_new =
      layer.head_dim > 192 && layer.head_dim <= 256 && layer.kv_bytes() >= 2 && layer.sliding_window == 0
          ? c_.fresh_256 - 1
          : 0;
  const double q_token_bytes = double(layer.num_q_heads) * width * layer.q_bytes;
  Load main;    // the kernel over the new tokens (and the prefix, where it is not separate)
  Load prefix;  // the kernel over the cached prefix
  main.rows = plan.rows;
  main.head_blocks = plan.head_blocks;
  prefix.head_blocks = plan.prefix_head_blocks;
  prefix.rows = plan.prefix_rows;
  double q_tokens = 0;
  double parts = 0;  // query tokens x parts that are merged
  for (const ExtendItem& item : plan.items) {
    ExtendItem own = item;
    if (plan.prefix_rows != 0 || plan.mla_chunk != 0) own.prefix = 0;
    // A loop that masks its window is given the window's part of the cache.
    if (plan.walks_window && layer.sliding_window != 0)
      own.prefix = std::min(own.prefix, layer.sliding_window);
    const std::uint32_t tiles = ceil_div(item.q_len, plan.tile_m);
    const std::uint32_t last_row = (tiles - 1) * plan.tile_m;
    const TileRange last = tile_range(plan, own, last_row, window);
    double longest = last.end - last.begin;
    double chunks = 1;
    if (plan.kv_chunk != 0) {
      const std::uint32_t seen_kv = own.prefix + own.q_len;
      const std::uint32_t reach = window == 0 ? seen_kv : std::min(seen_kv, window + plan.tile_m);
      chunks = ceil_div(reach, plan.kv_chunk);
      longest = std::min<double>(longest, plan.kv_chunk);
    }
    double tokens = static_cast<double>(tile_tokens(plan, own, layer.sliding_window));
    if (window != layer.sliding_window) {
      tokens += c_.walk * (static_cast<double>(tile_tokens(plan, own, window)) - tokens);
    }
    // Cached tokens are read through the page table.
    const double slower = window != 0 ? 0 : (cached - 1) * own.prefix;
    tokens += slower * tiles;
    if (plan.kv_chunk == 0) longest += slower;
    if (slower_new != 0) {
      const ExtendItem new_only{.request = own.request, .prefix = 0, .q_len = own.q_len};
      tokens += slower_new * static_cast<double>(tile_tokens(plan, new_only, 0));
      if (plan.kv_chunk == 0) longest += slower_new * own.q_len;
    }
    main.late = std::max(main.late,
                         main.tokens * main.head_blocks + longest * multiprocessors_ / block_compute(layer));
    main.tokens += tokens;
    main.tiles += tiles * chunks;
    if (plan.grid_tiles > tiles) {
      const double empty = plan.grid_tiles - tiles;
      main.tokens += empty * (last.end - last.begin + slower + slower_new * own.q_len);
      main.tiles += empty;
    }
    main.longest = std::max(main.longest, longest);
    // A window's KV begins at the first row's window.
    const std::uint32_t seen = own.prefix + own.q_len;
    const std::uint32_t hidden = layer.sliding_window != 0 && own.prefix + 1 > layer.sliding_window
                                     ? own.prefix + 1 - layer.sliding_window
                                     : 0;
    main.bytes += (seen - hidden) * kv_token_bytes;
    q_tokens += item.q_len;
    parts += item.q_len * chunks;
    if (plan.prefix_rows != 0 && item.prefix != 0) {
      const double prefix_tiles = ceil_div(item.q_len, plan.prefix_tile_m);
      const double prefix_chunks = plan.prefix_chunk == 0 ? 1 : ceil_div(item.prefix, plan.prefix_chunk);
      prefix.tokens += prefix_tiles * ceil_div(item.prefix, plan.tile_n) * plan.tile_n;
      prefix.tiles += prefix_tiles * prefix_chunks;
      prefix.longest = std::max<double>(
          prefix.longest, plan.prefix_chunk == 0 ? item.prefix : std::min(item.prefix, plan.prefix_chunk));
      prefix.bytes += item.prefix * kv_token_bytes;
      parts += item.q_len * prefix_chunks;
    }
  }
  main.bytes += q_tokens * q_token_bytes;
  occupancy = {(main.tiles * main.head_blocks + prefix.tiles * prefix.head_blocks) / multiprocessors_,
               std::max(main.longest, prefix.longest)};
  const double rate = flops_per_second(layer) * (plan.prefix_kernel ? c_.prefix : 1);
  cost.flops = 2.0 * width * (main.tokens * main.rows * main.head_blocks);
  cost.bytes = main.bytes;
  cost.launches = 1;
  cost.seconds = c_.fixed_seconds + tiles_seconds(main, layer, rate);
  bool merge = parts > q_tokens;
  if (prefix.tiles > 0) {
    prefix.bytes += q_tokens * q_token_bytes;
    cost.flops += 2.0 * width * (prefix.tokens * prefix.rows * prefix.head_blocks);
    cost.bytes += prefix.bytes;
    cost.launches += 2;  // and the kernel that merges both
    cost.seconds += c_.fixed_seconds + tiles_seconds(prefix, layer, rate * c_.prefix);
    merge = true;
  }
  if (plan.mla_chunk != 0) cost += mla_chunks(plan, layer, q_tokens);
  if (merge) {
    const double merge_bytes = 2 * parts * layer.num_q_heads * (layer.v_head_dim + 1) * 4.0;
    cost.bytes += merge_bytes;
    cost.seconds += c_.merge_seconds + memory_seconds(merge_bytes, layer) +
                    q_tokens * layer.num_q_heads / multiprocessors_ * c_.merge_row_seconds;
    if (prefix.tiles == 0 || plan.prefix_chunk != 0) ++cost.launches;
  }
  if (plan.merge_blocks > 0 && c_.merge_block_seconds > 0) {
    cost.seconds += plan.merge_blocks * c_.merge_block_seconds;
    if (!merge) {
      cost.seconds += c_.merge_seconds;
      ++cost.launches;
    }
  }
  if (plan.widens_kv) {
    double tokens = 0;
    for (const ExtendItem& item : plan.items) tokens += double(item.prefix) + item.q_len;
    cost += gather(tokens * (kv_token_bytes_of(stored) + kv_token_bytes_of(layer)), layer);
    cost.seconds += c_.fp8_seconds;
    ++cost.launches;
  }
  if (layer.sliding_window != 0) cost.seconds *= c_.window * (layer.head_dim <= kNarrow ? c_.window_64 : 1);
  cost.seconds += write_seconds(q_tokens, layer) + special_seconds(layer);
  return cost;
}

// One kernel over each chunk of all prefixes, and one that adds what it found to the sum so far: output (16
// bit) and log-sum-exp of both read, the new sum written.
KernelCost PlanCost::mla_chunks(const ExtendPlan& plan, const LayerShape& layer, double q_tokens) const {
  KernelCost cost;
  const double width = double(layer.head_dim) + layer.v_head_dim;
  const double rate = flops_per_second(layer);
  const double q_bytes = q_tokens * layer.num_q_heads * width * layer.q_bytes;
  const double merge_bytes = 3 * q_tokens * layer.num_q_heads * (2.0 * layer.v_head_dim + 4);
  std::uint32_t longest_prefix = 0;
  for (const ExtendItem& item : plan.items) longest_prefix = std::max(longest_prefix, item.prefix);
  for (std::uint32_t begin = 0; begin < longest_prefix; begin += plan.mla_chunk) {
    Load load;
    load.rows = plan.rows;
    load.head_blocks = plan.head_blocks;
    load.bytes = q_bytes;
    for (const ExtendItem& item : plan.items) {
      const std::uint32_t tokens = std::min(plan.mla_chunk, item.prefix - std::min(begin, item.prefix));
      const std::uint32_t walked = ceil_div(tokens, plan.tile_n) * plan.tile_n;
      const double tiles = ceil_div(item.q_len, plan.tile_m);
      load.tokens += tiles * walked;
      load.tiles += tiles;
      load.longest = std::max<double>(load.longest, walked);
      load.bytes += tokens * kv_token_bytes_of(layer);
    }
    cost += kernel(load, layer, rate);
    cost += {c_.merge_seconds + memory_seconds(merge_bytes, layer), 0, merge_bytes, 1};
  }
  return cost;
}

}  // namespace tpsim::attention
