#include "attention/planned_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "proto/base/ceil_div.h"

namespace tpsim::attention {

namespace {

std::string class_of(std::string_view backend, std::string_view kernel) {
  return fmt::format("attention.{}.{}", backend, kernel);
}

// An MLA kernel by its own class, else by that of the backend whose kernels serve (empty: its own), else by
// the coefficients of its MHA kernel (whose corrections know no such shapes).
PlanCost mla_cost(const proto::HardwareProfile& profile, std::string_view name, std::string_view kernels,
                  std::string_view kernel, std::string_view otherwise) {
  if (kernels.empty()) kernels = name;
  for (const std::string_view owner : {name, kernels}) {
    const std::string mla = class_of(owner, kernel);
    if (find_efficiency(profile, mla) != nullptr) return PlanCost(profile, mla);
  }
  return PlanCost(profile, coefficients_of<PlanCoefficients>(profile, class_of(kernels, otherwise)));
}

// The first KV token that a decoding request of `seq_len` tokens reads.
std::uint32_t first_read(std::uint32_t seq_len, const LayerShape& layer) {
  if (layer.attention_chunk != 0) return (seq_len - 1) / layer.attention_chunk * layer.attention_chunk;
  const std::uint32_t window = layer.sliding_window;
  return window != 0 && seq_len > window ? seq_len - window : 0;
}

}  // namespace

PlannedBackend::PlannedBackend(const BackendRow& row, const proto::HardwareProfile& profile,
                               std::uint32_t page_size)
    : row_(row),
      profile_(profile),
      page_size_(page_size),
      multiprocessors_(profile.multiprocessors()),
      generation_(parse_gpu_generation(profile.architecture()).value_or(GpuGeneration::kHopper)),
      extend_cost_(profile, class_of(row.name, "extend")),
      decode_cost_(profile, class_of(row.name, "decode")),
      mla_extend_cost_(mla_cost(profile, row.name, row.extend_kernels, "mla_extend", "extend")),
      mla_decode_cost_(mla_cost(profile, row.name, "", "mla_decode", "decode")),
      mla_prefill_cost_(mla_cost(profile, row.name, row.extend_kernels, "mla_prefill", "extend")),
      block_sparse_cost_(profile) {}

void PlannedBackend::init_cuda_graph_state(std::uint32_t max_bs) { captured_.assign(max_bs + 1, false); }

void PlannedBackend::init_forward_metadata_capture_cuda_graph(std::uint32_t bs) { captured_.at(bs) = true; }

void PlannedBackend::init_forward_metadata_replay_cuda_graph(const ForwardMetadata& metadata) {
  if (metadata.capture_bucket >= captured_.size() || !captured_[metadata.capture_bucket]) {
    throw std::logic_error(
        fmt::format("{}: no graph of batch size {} was captured", row_.name, metadata.capture_bucket));
  }
  take(metadata);
}

void PlannedBackend::init_forward_metadata(const ForwardMetadata& metadata) { take(metadata); }

void PlannedBackend::take(const ForwardMetadata& metadata) {
  metadata_ = metadata;
  if (!verifies_drafts(metadata.forward_mode) || !row_.verifies_by_decoding) return;
  verified_seq_lens_.clear();
  for (std::size_t i = 0; i < metadata.extend_lens.size(); ++i)
    verified_seq_lens_.push_back(metadata.extend_prefix_lens[i] + metadata.extend_lens[i]);
  metadata_.decode_seq_lens = verified_seq_lens_;
}

HostCost PlannedBackend::host_cost() const {
  const bool decode = metadata_.forward_mode == proto::DECODE;
  return {.launch_seconds = (decode ? decode_cost_ : extend_cost_).coefficients().launch_seconds};
}

const DecodePlan& PlannedBackend::decode_plan(const LayerShape& layer) {
  clear(decode_plan_);
  if (metadata_.forward_mode == proto::DECODE && !metadata_.decode_seq_lens.empty())
    plan_decode(layer, decode_plan_);
  return decode_plan_;
}

const ExtendPlan& PlannedBackend::extend_plan(const LayerShape& layer) {
  clear(extend_plan_);
  if (metadata_.forward_mode == proto::DECODE) return extend_plan_;
  if (metadata_.extend_lens.empty() && metadata_.decode_seq_lens.empty()) return extend_plan_;
  attention_chunk_ = layer.attention_chunk;
  plan_extend(layer, extend_plan_);
  if (layer.form == AttentionForm::kMlaExpanded) extend_plan_.mla_chunk = mla_extend().chunk_tokens;
  return extend_plan_;
}

// The rows of a block are the query heads of one KV head, once for each new token.
KernelCost PlannedBackend::verify_by_decoding(const LayerShape& layer) {
  if (metadata_.extend_lens.empty()) return {};
  LayerShape rows = layer;
  rows.num_q_heads *= metadata_.extend_lens.front();
  clear(decode_plan_);
  plan_decode(rows, decode_plan_);
  return decode_cost(layer.form == AttentionForm::kMlaAbsorbed ? mla_decode_cost_ : decode_cost_,
                     decode_plan_, rows);
}

// What the real kernels are given for `layer`; plans are of what it means.
LayerShape PlannedBackend::priced(const LayerShape& layer) const {
  LayerShape shape = layer;
  if (!row_.local_attention) shape.attention_chunk = 0;
  return shape;
}

// The same kernels beside whatever backend.
KernelCost PlannedBackend::block_sparse(const LayerShape& layer) {
  query_items_.clear();
  add_query_items(query_items_);
  return block_sparse_cost_.cost(query_items_, layer, metadata_.forward_mode == proto::DECODE);
}

KernelCost PlannedBackend::forward_extend(const LayerShape& of) {
  if (of.form == AttentionForm::kBlockSparse) return block_sparse(of);
  const LayerShape layer = priced(of);
  if (verifies_drafts(metadata_.forward_mode) && row_.verifies_by_decoding) return verify_by_decoding(layer);
  const PlanCost& model = layer.form == AttentionForm::kMlaAbsorbed   ? mla_extend_cost_
                          : layer.form == AttentionForm::kMlaExpanded ? mla_prefill_cost_
                                                                      : extend_model();
  return extend_cost(model, extend_plan(layer), layer);
}

KernelCost PlannedBackend::forward_decode(const LayerShape& of) {
  if (of.form == AttentionForm::kBlockSparse) return block_sparse(of);
  const LayerShape layer = priced(of);
  clear(decode_plan_);
  const bool decodes = metadata_.forward_mode == proto::DECODE && !metadata_.decode_seq_lens.empty();
  if (decodes && !sum_decode(layer, decode_plan_)) plan_decode(layer, decode_plan_);
  return decode_cost(layer.form == AttentionForm::kMlaAbsorbed ? mla_decode_cost_ : decode_cost_,
                     decode_plan_, layer);
}

KernelCost PlannedBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                       const LayerShape& layer) {
  return model.decode(plan, layer);
}

KernelCost PlannedBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                       const LayerShape& layer) {
  return model.extend(plan, layer);
}

KernelCost PlannedBackend::extend_cost_with_fp8_queries(bool rounds, const PlanCost& model,
                                                        const ExtendPlan& plan, const LayerShape& layer) {
  LayerShape cast = layer;
  if (rounds) cast.q_bytes = 1;
  KernelCost cost = model.extend(plan, cast);
  if (rounds && cost.launches > 0) ++cost.launches;
  return cost;
}

MlaExtend PlannedBackend::mla_extend() const {
  return attention::mla_extend(row_.mla_rule, mla_options_, metadata_);
}

// A request whose new tokens lie in several chunks is as many requests (make_local_attention_virtual_batches
// of SGLang's flashattention_backend.py).
void PlannedBackend::add_extend_item(std::uint32_t request, std::uint32_t prefix, std::uint32_t q_len,
                                     ExtendPlan& plan) const {
  if (attention_chunk_ == 0) {
    plan.items.push_back({request, prefix, q_len});
    return;
  }
  for (std::uint32_t at = prefix; at < prefix + q_len;) {
    const std::uint32_t begin = at / attention_chunk_ * attention_chunk_;
    const std::uint32_t count = std::min(prefix + q_len - at, attention_chunk_ - (at - begin));
    plan.items.push_back({request, at - begin, count, at - prefix, begin});
    at += count;
  }
}

std::uint32_t PlannedBackend::add_decode_items(const LayerShape& layer, DecodePlan& plan) const {
  const std::span<const std::uint32_t> seq_lens = metadata_.decode_seq_lens;
  plan.items.resize(seq_lens.size());
  std::uint32_t longest = 0;
  const bool whole = layer.sliding_window == 0 && layer.attention_chunk == 0;  // then nothing is left out
  for (std::uint32_t i = 0; i < seq_lens.size(); ++i) {
    const std::uint32_t end = seq_lens[i];
    const std::uint32_t begin = whole ? 0 : first_read(end, layer);
    plan.items[i] = {i, begin, end, 1, end - begin};
    longest = std::max(longest, end - begin);
  }
  return longest;
}

void PlannedBackend::add_query_items(std::vector<SparseItem>& items) const {
  std::uint32_t request = 0;
  if (metadata_.forward_mode != proto::DECODE) {
    for (; request < metadata_.extend_lens.size(); ++request)
      items.push_back({request, metadata_.extend_prefix_lens[request], metadata_.extend_lens[request]});
    if (metadata_.forward_mode != proto::MIXED) return;
  }
  for (const std::uint32_t length : metadata_.decode_seq_lens) items.push_back({request++, length - 1, 1});
}

std::uint32_t PlannedBackend::add_extend_items(ExtendPlan& plan) const {
  const auto extends = static_cast<std::uint32_t>(metadata_.extend_lens.size());
  for (std::uint32_t i = 0; i < extends; ++i)
    add_extend_item(i, metadata_.extend_prefix_lens[i], metadata_.extend_lens[i], plan);
  if (metadata_.forward_mode == proto::MIXED) {
    for (std::uint32_t i = 0; i < metadata_.decode_seq_lens.size(); ++i)
      add_extend_item(extends + i, metadata_.decode_seq_lens[i] - 1, 1, plan);
  }
  std::uint32_t longest = 0;
  for (const ExtendItem& item : plan.items) longest = std::max(longest, item.q_len);
  return longest;
}

void PlannedBackend::add_extend_items_by_head(std::uint32_t rows, std::uint32_t tile_n,
                                              const LayerShape& layer, ExtendPlan& plan) const {
  plan.rows = plan.tile_m = rows;
  plan.tile_n = tile_n;
  plan.head_blocks = layer.num_q_heads;
  add_extend_items(plan);
}

}  // namespace tpsim::attention
