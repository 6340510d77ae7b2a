#include "rank/llm/speculative_forward.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "rank/llm/layers.h"

namespace tpsim::rank {
namespace {

double seconds_of(const StepCost& cost) {
  return cost.attention + cost.gemm + cost.collective + cost.other + cost.launch;
}

// Small kernels between the passes, by events around draft() and the extend after a verification of SGLang
// 0.5.12 on an H200 (llama-3.1-8b with a head of one layer and with Llama 3.2 1B; 3 and 5 steps, 1, 4 and 8
// guesses, 1 to 48 requests): draft() within 4 % in the median, 13 % at worst. Not measured on other GPUs.
struct Choice {
  double choose_seconds, tree_seconds;
};
constexpr Choice kOneGuess = {.choose_seconds = 0.10e-3, .tree_seconds = 0.18e-3};
constexpr Choice kGuesses = {.choose_seconds = 0.23e-3, .tree_seconds = 0.27e-3};
// Memory traffic of choosing, a logit: softmax, top-k and copies in 32 bit come to 2.5 us for 128,256.
constexpr double kChoiceBytes = 75;

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
  if (rows == 0) return step;
  const auto add = [&](std::uint64_t k, std::uint64_t n, const WeightFormat& format) {
    const KernelCost cost = costs_.gemm(rows, n, k, format);
    step.gemm += cost.seconds;
    step.device_seconds += cost.seconds;
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

void SpeculativeForward::choose(double rows, StepCost& step) const {
  const KernelCost cost = costs_.elementwise(rows * draft_->config.vocab_size * kChoiceBytes);
  const double seconds = (shape_.topk > 1 ? kGuesses : kOneGuess).choose_seconds + cost.seconds;
  step.other += seconds;
  step.device_seconds += seconds;
  step.memory_bytes += cost.bytes;
}

void SpeculativeForward::build_tree(StepCost& step) const {
  const double seconds = (shape_.topk > 1 ? kGuesses : kOneGuess).tree_seconds;
  step.other += seconds;
  step.device_seconds += seconds;
}

StepCost SpeculativeForward::draft_pass(const attention::ForwardMetadata& metadata, bool extends,
                                        std::uint32_t rows) {
  if (metadata.forward_mode == proto::IDLE && metadata.global_num_tokens.empty()) return {};
  StepCost step = draft_forward_->forward(metadata);
  if (draft_->is_head()) step += head_products(extends, rows);
  return step;
}

void SpeculativeForward::set_global(const attention::ForwardMetadata& verify, std::uint32_t tokens,
                                    std::uint32_t logits, attention::ForwardMetadata& metadata) {
  metadata.tokens_per_request = tokens;
  metadata.one_logit_per_request = logits < tokens;
  metadata.global_num_tokens = metadata.global_num_tokens_for_logprob = {};
  if (verify.global_num_tokens.empty() || shape_.drafts_alone) return;
  global_num_tokens_.clear();
  global_num_tokens_for_logprob_.clear();
  for (const std::uint32_t count : verify.global_num_tokens) {
    const std::uint32_t requests = count / shape_.num_draft_tokens;
    global_num_tokens_.push_back(requests * tokens);
    global_num_tokens_for_logprob_.push_back(requests * logits);
  }
  metadata.global_num_tokens = global_num_tokens_;
  metadata.global_num_tokens_for_logprob = global_num_tokens_for_logprob_;
}

// Branches of a tree go on side by side: topk tokens of each request in a pass.
StepCost SpeculativeForward::draft_tokens(const attention::ForwardMetadata& verify) {
  StepCost step;
  const bool idle = verify.forward_mode == proto::IDLE;
  const auto requests = static_cast<std::uint32_t>(verify.extend_prefix_lens.size());
  const std::uint32_t rows = std::max(verify.capture_bucket, requests) * shape_.topk;
  attention::ForwardMetadata metadata;
  metadata.forward_mode = proto::IDLE;
  set_global(verify, shape_.topk, shape_.topk, metadata);
  if (idle && metadata.global_num_tokens.empty()) return step;
  for (std::uint32_t pass = 0; pass + 1 < shape_.num_steps; ++pass) {
    if (shape_.topk > 1 && draft_forward_->cascades()) {
      metadata.capture_bucket = verify.capture_bucket;
      if (!idle) {
        metadata.forward_mode = proto::TARGET_VERIFY;
        lens_.assign(requests, shape_.topk);
        metadata.extend_prefix_lens = verify.extend_prefix_lens;
        metadata.extend_lens = lens_;
        metadata.tree_mask = true;
      }
    } else {
      metadata.tokens_per_request = 1;  // branches are requests of their own
      metadata.capture_bucket = verify.capture_bucket * shape_.topk;
      if (!idle) {
        metadata.forward_mode = proto::DECODE;
        lens_.clear();
        for (const std::uint32_t prefix : verify.extend_prefix_lens)
          lens_.insert(lens_.end(), shape_.topk, prefix + pass + 1);
        metadata.decode_seq_lens = lens_;
      }
    }
    step += draft_pass(metadata, /*extends=*/false, rows);
    if (pass > 0 && verify.capture_bucket > 0 && step.launch > 0) {  // one graph
      step.launch -= graph_replay_;
      step.device_seconds -= graph_replay_;
    }
    if (rows > 0) choose(rows, step);
  }
  if (!idle) build_tree(step);
  return step;
}

// Of a step that verifies; an idle rank has none of its own, but runs the same passes as the others.
StepCost SpeculativeForward::forward(const attention::ForwardMetadata& batch) {
  attention::ForwardMetadata metadata = batch;
  const bool idle = metadata.forward_mode == proto::IDLE;
  if (idle && metadata.global_num_tokens.empty()) return target_->forward(metadata);
  const bool verifies =
      metadata.forward_mode == proto::TARGET_VERIFY || (idle && !metadata.is_extend_in_batch);
  metadata.tree_mask = metadata.forward_mode == proto::TARGET_VERIFY && shape_.tree_mask;
  if (verifies) metadata.tokens_per_request = shape_.num_draft_tokens;
  StepCost draft;
  const auto requests = static_cast<double>(metadata.extend_lens.size());
  const double host = verifies && !idle ? shape_.host.seconds + shape_.host.seconds_of_request * requests : 0;
  if (!shape_.host.overlaps) draft.launch = draft.device_seconds = host;
  if (verifies && draft_forward_ != nullptr) draft += draft_tokens(metadata);
  StepCost step = target_->forward(metadata);
  step.draft_seconds = seconds_of(draft);
  step += draft;
  if (draft_forward_ == nullptr) return step;
  metadata.tree_mask = false;
  if (verifies) {
    if (!idle) metadata.forward_mode = proto::DRAFT_EXTEND;
    set_global(batch, shape_.num_draft_tokens, 1, metadata);
    if (!shape_.extend_captured) metadata.capture_bucket = 0;
  } else if (shape_.drafts_alone) {
    metadata.global_num_tokens = metadata.global_num_tokens_for_logprob = {};
  }
  std::uint32_t tokens = std::accumulate(metadata.extend_lens.begin(), metadata.extend_lens.end(), 0U);
  tokens += static_cast<std::uint32_t>(metadata.decode_seq_lens.size());  // beside a chunk of prefill
  if (verifies && metadata.capture_bucket > 0) tokens = metadata.capture_bucket * shape_.num_draft_tokens;
  StepCost extend = draft_pass(metadata, /*extends=*/true, tokens);
  if (!idle) choose(std::max(requests, double(metadata.capture_bucket)), extend);
  step += extend;
  step.draft_extend_seconds = seconds_of(extend);
  if (!verifies || shape_.host.overlaps) {
    const IssuedTime all = {step.device_seconds, step.issue_seconds + (shape_.host.overlaps ? host : 0)};
    const double change = all.seconds() - seconds_of(step);
    step.launch += change;
    // It is the extend that is issued in time.
    step.draft_extend_seconds = std::max(0.0, step.draft_extend_seconds + std::min(change, 0.0));
  }
  return step;
}

void SpeculativeForward::save(StateWriter& state) const {
  target_->save(state);
  if (draft_forward_ != nullptr) draft_forward_->save(state);
}

void SpeculativeForward::load(StateReader& state) {
  target_->load(state);
  if (draft_forward_ != nullptr) draft_forward_->load(state);
}

}  // namespace tpsim::rank
