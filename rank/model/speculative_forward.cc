#include "rank/model/speculative_forward.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "rank/model/layers.h"

namespace tpsim::rank {
namespace {

double seconds_of(const StepCost& cost) {
  return cost.attention + cost.gemm + cost.collective + cost.other + cost.launch;
}

}  // namespace

SpeculativeForward::SpeculativeForward(std::unique_ptr<ModeledForward> target,
                                       std::unique_ptr<DraftModel> draft,
                                       std::unique_ptr<ModeledForward> draft_forward,
                                       const Shard& draft_shard, const proto::HardwareProfile& profile,
                                       const SpeculationShape& shape)
    : target_(std::move(target)),
      draft_(std::move(draft)),
      draft_forward_(std::move(draft_forward)),
      draft_shard_(draft_shard),
      costs_(profile),
      shape_(shape),
      graph_replay_(profile.graph_replay_seconds()) {}

StepCost SpeculativeForward::head_products(bool extends, std::uint32_t rows) const {
  StepCost step;
  const auto add = [&](std::uint64_t k, std::uint64_t n, const WeightFormat& format) {
    const KernelCost cost = costs_.gemm(rows, n, k, format);
    step.gemm += cost.seconds;
    step.flops += cost.flops;
    step.memory_bytes += cost.bytes;
  };
  const std::uint64_t hidden = draft_->config.hidden_size;
  if (const std::uint32_t joined = draft_->joined(extends); joined > 0) add(joined * hidden, hidden, {});
  if (draft_->wide_qkv()) {  // the half of the product that the layer's own list lacks
    for (const WeightSpec& weight : weight_list(draft_->config, draft_shard_)) {
      if (weight.name == "qkv_proj") add(weight.k, weight.n, weight.format);
    }
  }
  return step;
}

StepCost SpeculativeForward::draft_pass(const attention::ForwardMetadata& metadata, bool extends,
                                        std::uint32_t rows) {
  StepCost step = draft_forward_->forward(metadata);
  if (draft_->is_head()) step += head_products(extends, rows);
  return step;
}

// Branches of a tree go on side by side: topk tokens of each request in a pass.
StepCost SpeculativeForward::draft_tokens(const attention::ForwardMetadata& verify) {
  StepCost step;
  const auto requests = static_cast<std::uint32_t>(verify.extend_prefix_lens.size());
  const std::uint32_t rows = std::max(verify.capture_bucket, requests) * shape_.topk;
  for (std::uint32_t pass = 0; pass + 1 < shape_.num_steps; ++pass) {
    attention::ForwardMetadata metadata;
    if (shape_.topk > 1 && draft_forward_->cascades()) {
      metadata.forward_mode = proto::TARGET_VERIFY;
      lens_.assign(requests, shape_.topk);
      metadata.extend_prefix_lens = verify.extend_prefix_lens;
      metadata.extend_lens = lens_;
      metadata.tree_mask = true;
      metadata.capture_bucket = verify.capture_bucket;
    } else {
      metadata.forward_mode = proto::DECODE;
      lens_.clear();
      for (const std::uint32_t prefix : verify.extend_prefix_lens)
        lens_.insert(lens_.end(), shape_.topk, prefix + pass + 1);
      metadata.decode_seq_lens = lens_;
      metadata.capture_bucket = verify.capture_bucket * shape_.topk;
    }
    step += draft_pass(metadata, /*extends=*/false, rows);
    if (pass > 0 && verify.capture_bucket > 0) step.launch -= graph_replay_;  // one graph of all passes
  }
  return step;
}

StepCost SpeculativeForward::forward(const attention::ForwardMetadata& batch) {
  attention::ForwardMetadata metadata = batch;
  const bool verifies = metadata.forward_mode == proto::TARGET_VERIFY;
  metadata.tree_mask = verifies && shape_.tree_mask;
  StepCost draft;
  const auto requests = static_cast<double>(metadata.extend_lens.size());
  if (verifies) draft.launch = shape_.host.seconds + shape_.host.seconds_of_request * requests;
  if (verifies && draft_forward_ != nullptr) draft += draft_tokens(metadata);
  StepCost step = target_->forward(metadata);
  step.draft_seconds = seconds_of(draft);
  step += draft;
  if (draft_forward_ == nullptr || metadata.forward_mode == proto::IDLE) return step;
  if (verifies) metadata.forward_mode = proto::DRAFT_EXTEND;
  metadata.tree_mask = false;
  if (verifies && !shape_.extend_captured) metadata.capture_bucket = 0;
  std::uint32_t tokens = std::accumulate(metadata.extend_lens.begin(), metadata.extend_lens.end(), 0U);
  tokens += static_cast<std::uint32_t>(metadata.decode_seq_lens.size());  // beside a chunk of prefill
  if (verifies && metadata.capture_bucket > 0)
    tokens = metadata.capture_bucket * metadata.extend_lens.front();
  const StepCost extend = draft_pass(metadata, /*extends=*/true, tokens);
  step += extend;
  step.draft_extend_seconds = seconds_of(extend);
  return step;
}

}  // namespace tpsim::rank
