#include "rank/llm/communication.h"

#include <algorithm>
#include <numeric>

#include "proto/base/ceil_div.h"
#include "rank/config/weight_format.h"

namespace tpsim::rank {
namespace {

constexpr double kHandedOver = 2;  // tensors from stage to stage: hidden states and residual
constexpr double kTokenId = 8;     // bytes of a sampled token (int64)
constexpr double kIndex = 4;       // bytes of a selected position (int32)

}  // namespace

PassRows pass_rows(const attention::ForwardMetadata& metadata, const Shard& shard, std::uint32_t tokens,
                   std::uint32_t sampled, std::uint32_t bucket) {
  const ParallelLayout& layout = shard.layout;
  PassRows rows;
  // Only DeepEP's price depends on it.
  rows.extends = layout.a2a() && !metadata.extend_lens.empty();
  if (metadata.global_num_tokens.empty()) {
    rows.attention = rows.gathered = bucket > 0 ? bucket : tokens;
    rows.sampled = rows.head = metadata.capture_bucket > 0 ? bucket : sampled;
    rows.routed = layout.a2a() ? tokens : rows.gathered;
    return rows;
  }
  rows.extends = metadata.is_extend_in_batch;
  const auto ranks = static_cast<std::uint32_t>(metadata.global_num_tokens.size());
  std::uint32_t sum = 0, most = 0, real = 0;
  for (const std::uint32_t count : metadata.global_num_tokens) {
    const std::uint32_t aligned = ceil_align(count, layout.attn_tp_size());
    real += count;
    sum += aligned;
    most = std::max(most, aligned);
  }
  const auto& wanted = metadata.global_num_tokens_for_logprob;
  if (bucket > 0) {  // graphs are captured with all ranks padded alike
    rows.max_len = true;
    rows.attention = bucket;
    rows.gathered = bucket * ranks;
  } else {
    rows.max_len = !rows.extends && std::uint64_t{sum} * 2 >= std::uint64_t{most} * ranks;
    rows.attention = rows.max_len ? most : ceil_align(tokens, layout.attn_tp_size());
    rows.gathered = rows.max_len ? most * ranks : sum;
  }
  const bool replayed = metadata.capture_bucket > 0;
  rows.sampled = replayed ? bucket : sampled;
  rows.head = replayed ? bucket * ranks : std::accumulate(wanted.begin(), wanted.end(), 0U);
  if (shard.head.size == layout.attn_tp_size() && layout.dp_size > 1) rows.head = rows.sampled;
  rows.routed = layout.a2a() ? real : rows.gathered;
  return rows;
}

std::uint32_t Communication::scattered(const PassRows& rows) const {
  const std::uint32_t parts = shard_.layout.attn_tp_size();
  return (rows.attention + parts - 1) / parts;
}

std::uint32_t Communication::rows_of(ModelPart part, const PassRows& rows) const {
  switch (part) {
    case ModelPart::kDenseMlp:
      return shard_.layout.moe_dense_tp1 ? scattered(rows) : rows.gathered;
    case ModelPart::kRouter:
    case ModelPart::kSharedExperts:
      return shard_.layout.a2a() ? scattered(rows) : rows.gathered;
    case ModelPart::kHead:
      return rows.head;
    case ModelPart::kExperts:
      return rows.routed;
    case ModelPart::kAttention:
    case ModelPart::kRest:
      break;
  }
  return rows.attention;
}

double Communication::copied_elements(const PassRows& rows) const {
  if (shard_.layout.dp_size == 1 || shard_.layout.a2a() || rows.max_len) return 0;
  // The buffer of all tokens is cleared and the rank's own are put into it; after the MLP they are taken out
  // again.
  return (double(rows.gathered) + 5.0 * rows.attention) * model_.hidden_size;
}

void Communication::all_reduce(double bytes, std::uint32_t gpus, double times,
                               std::vector<Exchange>& out) const {
  if (gpus > 1 && bytes > 0)
    out.push_back({costs_.all_reduce(bytes, gpus), costs_.all_reduce_sent(bytes, gpus), times,
                   costs_.all_reduce_network(bytes, gpus), !costs_.uses_custom_all_reduce(bytes, gpus)});
}

void Communication::all_gather(double bytes_per_gpu, std::uint32_t gpus, double times,
                               std::vector<Exchange>& out) const {
  if (gpus > 1 && bytes_per_gpu > 0)
    out.push_back({costs_.all_gather(bytes_per_gpu, gpus), bytes_per_gpu * (gpus - 1), times,
                   costs_.gather_network(bytes_per_gpu * gpus, gpus)});
}

void Communication::reduce_scatter(double bytes, std::uint32_t gpus, double times,
                                   std::vector<Exchange>& out) const {
  if (gpus > 1 && bytes > 0)
    out.push_back({costs_.reduce_scatter(bytes, gpus), bytes * (gpus - 1) / gpus, times,
                   costs_.gather_network(bytes, gpus)});
}

// ScatterMode.FULL: the MLP is cut over all ranks and sees all tokens.
void Communication::full_layers(const PassRows& rows, double layers, std::vector<Exchange>& out) const {
  const ParallelLayout& layout = shard_.layout;
  const std::uint32_t tp = layout.tp_size;
  const std::uint32_t attn_tp = layout.attn_tp_size();
  const double own = double(rows.attention) * model_.hidden_size * kElement;
  const double all = double(rows.gathered) * model_.hidden_size * kElement;
  if (layout.dp_size == 1) {
    all_reduce(own, tp, 2 * layers, out);
  } else if (!rows.max_len) {
    all_reduce(all, tp, 2 * layers, out);
  } else {
    reduce_scatter(own, attn_tp, layers, out);
    all_gather(own / attn_tp, tp, layers, out);
    reduce_scatter(all, tp, layers, out);
    all_gather(own / attn_tp, attn_tp, layers, out);
    for (Exchange& exchange : out) exchange.cost.seconds += host_.exchange_seconds();
  }
}

// ScatterMode.SCATTERED: each rank of a data-parallel rank goes on with a part of its tokens.
void Communication::scattered_layers(const PassRows& rows, double layers, std::vector<Exchange>& out) const {
  const std::uint32_t attn_tp = shard_.layout.attn_tp_size();
  const double own = double(rows.attention) * model_.hidden_size * kElement;
  reduce_scatter(own, attn_tp, layers, out);
  all_gather(own / attn_tp, attn_tp, layers, out);
}

bool Communication::low_latency(const PassRows& rows) const {
  const DeepEpMode mode = shard_.layout.deepep_mode;
  return mode == DeepEpMode::kAuto ? !rows.extends : mode == DeepEpMode::kLowLatency;
}

// DeepEP. Dispatch sends 8-bit activations with a scale for each 128, combine returns 16-bit sums. Kernels
// for throughput send a token once to each rank that has some of its experts, those for low latency once to
// each expert.
void Communication::expert_exchange(const PassRows& rows, double layers, std::vector<Exchange>& out) const {
  const double ep = shard_.layout.ep_size;
  const double tokens = scattered(rows);
  if (ep <= 1 || tokens == 0) return;
  const bool low = low_latency(rows);
  const double top_k = model_.moe.top_k;
  const double copies = low ? top_k : ep * (1 - power(1 - 1 / ep, model_.moe.top_k));
  const double hidden = model_.hidden_size;
  const double away = tokens * copies * (ep - 1) / ep;
  // Over the network a token goes once to each node, and is passed on there, or once to each expert.
  const std::uint32_t nodes = costs_.nodes(shard_.layout.ep_size);
  const double n = nodes;
  const double crossing = tokens * (low ? top_k : n * (1 - power(1 - 1 / n, model_.moe.top_k))) * (n - 1) / n;
  const auto exchange = [&](double each, Exchange::Tokens tokens) {
    const double bytes = away * each;
    out.push_back({costs_.expert_exchange(bytes, crossing * each, nodes, low), bytes, layers, crossing * each,
                   false, tokens});
  };
  exchange(hidden + hidden / 128 * 4, Exchange::Tokens::kDispatched);
  exchange(hidden * 2, Exchange::Tokens::kCombined);
}

std::vector<Communication::Exchange> Communication::layers(const PassRows& rows, bool with_experts) const {
  const ParallelLayout& layout = shard_.layout;
  const double experts = model_.moe.num_layers;
  const double dense = model_.num_dense_layers();
  const double full = (layout.a2a() ? 0 : experts) + (layout.moe_dense_tp1 ? 0 : dense);
  std::vector<Exchange> out;
  if (full > 0) full_layers(rows, full, out);
  const double scattered = experts + dense - full;
  if (scattered > 0) scattered_layers(rows, scattered, out);
  if (layout.a2a() && with_experts) expert_exchange(rows, experts, out);
  if (model_.num_bare_layers > 0)
    all_reduce(double(rows.attention) * model_.hidden_size * kElement, layout.tp_size, model_.num_bare_layers,
               out);
  // What experts said in their own space, before its norm (models/kimi_k3.py, _latent_norm).
  if (model_.moe.latent_norm && !layout.a2a())
    all_reduce(double(rows.gathered) * model_.moe.latent_size * kElement, layout.tp_size, experts, out);
  // The sums of squares of a token's queries and of its keys, in fp32 (minimax_m2.py).
  if (model_.qk_norm_over_heads)
    all_reduce(double(rows.attention) * 2 * sizeof(float), shard_.attention.size, model_.num_layers, out);
  return out;
}

std::vector<Communication::Exchange> Communication::embedding(const PassRows& rows) const {
  std::vector<Exchange> out;
  all_reduce(double(rows.attention) * model_.hidden_size * kElement, shard_.attention.size, 1, out);
  return out;
}

std::vector<Communication::Exchange> Communication::receive(const PassRows& rows) const {
  std::vector<Exchange> out;
  const double part = double(rows.attention) * model_.hidden_size * kElement / shard_.layout.attn_tp_size();
  if (!shard_.stage.first()) all_gather(part, shard_.layout.attn_tp_size(), kHandedOver, out);
  return out;
}

std::vector<Communication::Exchange> Communication::send(const PassRows& rows, bool with_selection) const {
  std::vector<Exchange> out;
  if (shard_.stage.size == 1 || rows.attention == 0) return out;
  const double ranks = shard_.layout.attn_tp_size();
  const auto send = [&](double bytes, double times) {
    if (shard_.layout.sends_over_network(shard_.stage.rank, shard_.stage.size))
      out.push_back({costs_.network_send(bytes / ranks), bytes / ranks, times, bytes / ranks});
    else
      out.push_back({costs_.send(bytes / ranks), bytes / ranks, times});
  };
  if (shard_.stage.last()) {
    send(double(rows.sampled) * kTokenId, 1);
    return out;
  }
  send(double(rows.attention) * model_.hidden_size * kElement, kHandedOver);
  if (with_selection) send(double(rows.attention) * model_.indexer.top_k * kIndex, 1);
  return out;
}

std::vector<Communication::Exchange> Communication::head(const PassRows& rows) const {
  std::vector<Exchange> out;
  if (rows.head == 0) return out;
  const ParallelLayout& layout = shard_.layout;
  if (layout.dp_size > 1 && shard_.head.size == layout.tp_size && layout.attn_tp_size() != layout.tp_size)
    all_reduce(double(rows.head) * model_.hidden_size * kElement, layout.tp_size, 1, out);
  all_gather(double(rows.head) * shard_.vocab * kElement, shard_.head.size, 1, out);
  return out;
}

}  // namespace tpsim::rank
