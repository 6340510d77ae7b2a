#include "rank/model/modeled_forward.h"

#include <algorithm>
#include <utility>

namespace tpsim::rank {
namespace {

constexpr double kElement = 2;  // bytes of an activation (bf16)
constexpr double kLogit = 4;    // bytes of a logit (fp32) in sampling

// Kernels of one layer that an eager pass issues on top of those that are priced one by one: their bytes are
// counted with a neighbour's. Counted in SGLang 0.5.12's models/deepseek_v2.py and fused_moe_triton.
constexpr double kMlaIssued = 4;     // norm of the latent, copies of rotated q and k, k put together
constexpr double kMoeIssued = 3;     // second kernel of the alignment, activation, sum over the experts
constexpr double kSharedIssued = 3;  // activation of the shared experts, scaling, sum with the routed ones

}  // namespace

ModeledForward::ModeledForward(const ModelConfig& model, const proto::HardwareProfile& profile,
                               const Shard& shard, std::unique_ptr<attention::AttentionBackend> backend,
                               Options options)
    : model_(model),
      shard_(shard),
      costs_(profile),
      backend_(std::move(backend)),
      attention_layers_(attention_layers(model_, shard_, options.kv_element_bytes)),
      weights_(weight_list(model_, shard_)),
      kernel_launch_(profile.kernel_launch_seconds()),
      piecewise_layer_(profile.piecewise_layer_seconds()),
      graph_replay_(profile.graph_replay_seconds()),
      graph_gap_(profile.graph_kernel_gap_seconds()),
      prefill_graphs_(std::move(options.prefill_graphs)) {
  if (!options.cuda_graph_bs.empty()) {
    backend_->init_cuda_graph_state(options.cuda_graph_bs.back());
    for (const std::uint32_t bs : options.cuda_graph_bs)
      backend_->init_forward_metadata_capture_cuda_graph(bs);
  }
}

ModeledForward::Dense ModeledForward::price_dense(std::uint32_t rows, std::uint32_t sampled) const {
  Dense dense;
  const double m = rows;
  const double hidden = model_.hidden_size;
  const double q = double(shard_.q_heads.count()) * model_.head_dim;
  const double kv = double(attention_layers_.front().kv_elements) / 2;
  const std::uint32_t tp = shard_.tp_size;
  const double layers = model_.num_layers;
  const auto add = [&dense](double Dense::*part, const KernelCost& cost, double times) {
    dense.*part += cost.seconds * times;
    dense.flops += cost.flops * times;
    dense.bytes += cost.bytes * times;
    dense.launches += cost.launches * times;
  };
  const auto other = [&](double elements, double times) {
    add(&Dense::other, costs_.elementwise(elements * kElement), times);
  };
  const auto all_reduce = [&](double bytes, double times) {
    if (tp == 1) return;
    add(&Dense::collective, costs_.all_reduce(bytes, tp), times);
    dense.communicated += costs_.all_reduce_sent(bytes, tp) * times;
  };

  for (const WeightSpec& weight : weights_) {
    const double weight_rows = weight.sharding == Sharding::kVocabulary ? sampled : m;
    if (weight.role != WeightRole::kLinear || weight_rows == 0) continue;
    add(&Dense::gemm, costs_.gemm(weight_rows, double(weight.n), double(weight.k), model_.weight_bytes),
        weight.layers);
  }
  if (model_.moe.num_layers > 0) {
    add(&Dense::gemm,
        costs_.moe(m, hidden, double(model_.moe.intermediate_size) / tp, model_.moe.num_experts,
                   model_.moe.top_k, model_.weight_bytes),
        model_.moe.num_layers);
  }
  if (const std::uint32_t dense_layers = model_.num_layers - model_.moe.num_layers; dense_layers > 0) {
    other(m * 3.0 * model_.intermediate_size / tp, dense_layers);  // silu and mul
  }
  other(m * 4 * hidden, 2 * layers);  // add and rmsnorm, twice a layer
  if (model_.post_norms) other(m * 2 * hidden, 2 * layers);
  other(m * 2 * (q + kv), layers);                      // rope
  if (model_.qk_norm) other(m * 2 * (q + kv), layers);  // q and k norm
  other(m * 4 * kv, layers);                            // new keys and values into the pool
  all_reduce(m * hidden * kElement, 2 * layers);
  other(m * 2 * hidden, 1);  // embedding
  all_reduce(m * hidden * kElement, 1);
  other(m * 4 * hidden, 1);  // final norm
  if (sampled > 0) {
    if (tp > 1) {
      const double part = double(sampled) * shard_.vocab * kElement;
      add(&Dense::collective, costs_.all_gather(part, tp), 1);
      dense.communicated += part * (tp - 1);
    }
    add(&Dense::other, costs_.elementwise(double(sampled) * model_.vocab_size * kLogit), 2);  // sampling
  }
  dense.issued = dense.launches;
  if (model_.is_mla()) dense.issued += kMlaIssued * layers;
  dense.issued +=
      (kMoeIssued + (model_.moe.num_shared_experts > 0 ? kSharedIssued : 0)) * model_.moe.num_layers;
  return dense;
}

const ModeledForward::Dense& ModeledForward::dense(std::uint32_t rows, std::uint32_t sampled) {
  const std::uint64_t key = std::uint64_t{rows} << 32 | sampled;
  const auto found = dense_.find(key);
  if (found != dense_.end()) return found->second;
  return dense_.emplace(key, price_dense(rows, sampled)).first->second;
}

StepCost ModeledForward::forward(const attention::ForwardMetadata& metadata) {
  StepCost step;
  if (metadata.forward_mode == proto::IDLE) return step;
  const bool captured = metadata.capture_bucket > 0;
  bool pieces = false;
  std::uint32_t rows = 0;
  for (const std::uint32_t length : metadata.extend_lens) rows += length;
  auto sampled = static_cast<std::uint32_t>(metadata.extend_lens.size());
  if (captured) {
    backend_->init_forward_metadata_replay_cuda_graph(metadata);
    rows = sampled = metadata.capture_bucket;
  } else {
    backend_->init_forward_metadata(metadata);
    if (metadata.forward_mode != proto::EXTEND) {
      rows += static_cast<std::uint32_t>(metadata.decode_seq_lens.size());
      sampled += static_cast<std::uint32_t>(metadata.decode_seq_lens.size());
    }
    if (metadata.forward_mode != proto::DECODE) {
      const std::uint32_t bucket = prefill_graphs_.bucket(rows);
      pieces = bucket > 0;
      if (pieces) rows = bucket;
    }
  }
  const Dense& dense = this->dense(rows, sampled);
  step.gemm = dense.gemm;
  step.collective = dense.collective;
  step.other = dense.other;
  step.flops = dense.flops;
  step.memory_bytes = dense.bytes;
  step.communicated_bytes = dense.communicated;

  const attention::KernelCost plan = backend_->plan_cost();
  double attention_launches = 0;
  for (const AttentionLayers& kind : attention_layers_) {
    const double layers = kind.count;
    const attention::KernelCost cost = metadata.forward_mode == proto::DECODE
                                           ? backend_->forward_decode(kind.shape)
                                           : backend_->forward_extend(kind.shape);
    step.attention += cost.seconds * layers;
    step.flops += cost.flops * layers;
    step.memory_bytes += cost.bytes * layers;
    attention_launches += cost.launches * layers;
  }
  if (captured) {
    step.launch = graph_replay_ + (dense.launches + plan.launches + attention_launches) * graph_gap_;
  } else {
    step.launch = uncaptured_seconds(step, dense, plan, attention_launches, pieces) -
                  (step.attention + plan.seconds + step.gemm + step.collective + step.other);
  }
  step.attention += plan.seconds;
  step.host_seconds = backend_->plan_host_seconds();
  return step;
}

double ModeledForward::uncaptured_seconds(const StepCost& step, const Dense& dense,
                                          const attention::KernelCost& plan, double attention_launches,
                                          bool pieces) const {
  const attention::HostCost host = backend_->host_cost();
  // Kernels leave the same gaps on the device as in a graph.
  const double other_device =
      step.gemm + step.collective + step.other + plan.seconds + (dense.launches + plan.launches) * graph_gap_;
  const double attention_device = step.attention + attention_launches * graph_gap_;
  const double other_host = pieces ? piecewise_layer_ * model_.num_layers  // one attention call included
                                   : (dense.issued + plan.launches) * kernel_launch_;
  double attention_host =
      attention_launches * (host.launch_seconds > 0 ? host.launch_seconds : kernel_launch_) +
      host.once_seconds;
  if (host.synchronous)
    return std::max(other_device, other_host) + std::max(attention_device, attention_host);
  if (pieces) attention_host = host.once_seconds;
  return std::max(other_device + attention_device, other_host + attention_host);
}

}  // namespace tpsim::rank
