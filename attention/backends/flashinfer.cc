// FlashInfer: batch prefill and decode over a ragged page table, planned on the host before each pass.
//
// Facts from the public sources of flashinfer 0.6 (attention/scheduler.cuh, utils.cuh, decode.cuh) and of
// SGLang's flashinfer_backend.py:
// - query rows of the heads of one KV head are packed; the query tile is 128, 64 or 16 rows by the average
//   packed length;
// - decode uses the tensor-core kernel (the prefill kernel with one query token) where four or more query
//   heads share a KV head or the KV cache is fp8, else a kernel on the vector units;
// - a binary search finds the smallest KV chunk whose blocks still fit the device at once; parts are merged
//   by a kernel of their own. A decode planned for a captured graph always takes the splitting kernel;
// - prefill attends to the new tokens from the dense k and v (on Hopper with FlashInfer's FA3 template), to
//   the cached prefix with a second, paged kernel without mask, and merges both; where the prefill is
//   captured in pieces, the paged kernel (FlashInfer's FA2 template) reads both at once (use_ragged of
//   init_forward_metadata, SGLang 0.5.12);
// - drafts are verified by the paged kernel over prefix and drafts together, with a mask, in FlashInfer's FA2
//   template;
// - SGLang gives it page size 1 whatever the pool's page size is.
// - MLA (flashinfer_mla_backend.py): see attention/backends/flashinfer_mla.h.
// The plan reads the lengths on the host.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attention/backend_description.h"
#include "attention/backends/flashinfer_mla.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kBlocksPerMultiprocessor = 2;  // that the plan of the tensor-core kernels counts on
constexpr std::uint32_t kMinChunk = 128;               // KV tokens
// Prefills in pieces by the FA2 template, where it was measured beside another one (Hopper).
constexpr std::string_view kPagedClass = "attention.flashinfer.paged.extend";

// Thread blocks of the vector decode kernel that fit one multiprocessor, by shared memory.
std::uint32_t decode_blocks_per_multiprocessor(const LayerShape& layer, double shared_memory_bytes) {
  // decode.cuh: rows of 16-byte loads, 128 threads or more, two stages of K and V in shared memory.
  const auto kv_bytes = std::max(1U, static_cast<std::uint32_t>(layer.kv_bytes()));
  const std::uint32_t group = std::max(1U, layer.num_q_heads / layer.num_kv_heads);
  const std::uint32_t vector = std::max(16 / kv_bytes, layer.head_dim / 32);
  const std::uint32_t threads_x = std::max(1U, layer.head_dim / vector);
  const std::uint32_t threads_z = std::max(128U, threads_x * group) / (threads_x * group);
  const std::uint32_t tile = group == 1 ? (layer.fp8_kv() ? 2 : 4) : 1;
  const double bytes = 2.0 * 2 * tile * group * threads_z * layer.head_dim * kv_bytes;
  constexpr double kByRegisters = 8;
  return static_cast<std::uint32_t>(std::clamp(std::floor(shared_memory_bytes / bytes), 1.0, kByRegisters));
}

class FlashInferBackend : public PlannedBackend {
 public:
  FlashInferBackend(const BackendRow& row, const proto::HardwareProfile& profile, std::uint32_t page_size)
      : PlannedBackend(row, profile, page_size) {
    if (find_efficiency(profile, kPagedClass) != nullptr) paged_cost_.emplace(profile, kPagedClass);
  }

  double plan_host_seconds() const override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  const PlanCost& extend_model() const override {
    return metadata().in_pieces && paged_cost_ ? *paged_cost_ : PlannedBackend::extend_model();
  }

 private:
  // A request for smallest_chunk: its query tiles, each to be cut into parts of its KV tokens.
  void add_demand(std::uint32_t tiles, std::uint32_t tokens);
  // The smallest KV chunk, at least 128 tokens, for which all parts of the demands together are at most
  // `room`; the longest request's KV length if none is. Empties the demands. `guess`: where to look first; it
  // is set to the answer, since the next pass's answer is near, and changes nothing but the time.
  std::uint32_t smallest_chunk(std::uint64_t room, std::uint32_t& guess);

  std::optional<PlanCost> paged_cost_;
  std::uint32_t decode_guess_ = 0;
  std::uint32_t extend_guess_ = 0;
  std::uint32_t prefix_guess_ = 0;
  std::vector<double> demand_tiles_;  // scratch
  std::vector<double> demand_tokens_;
};

void FlashInferBackend::add_demand(std::uint32_t tiles, std::uint32_t tokens) {
  demand_tiles_.push_back(tiles);
  demand_tokens_.push_back(tokens);
}

std::uint32_t FlashInferBackend::smallest_chunk(std::uint64_t room, std::uint32_t& guess) {
  const std::size_t count = demand_tiles_.size();
  const double* tiles = demand_tiles_.data();
  const double* tokens = demand_tokens_.data();
  double longest = 1;
  double total = 0;
  double all_tiles = 0;
  for (std::size_t i = 0; i < count; ++i) {
    longest = std::max(longest, tokens[i]);
    total += tiles[i] * tokens[i];
    all_tiles += tiles[i];
  }
  auto high = static_cast<std::uint32_t>(longest);
  std::uint32_t low = std::min(kMinChunk, high);
  const auto most = static_cast<double>(room);
  if (all_tiles > most) low = high;  // whole requests are too many already
  if (low < high) {
    // total / chunk <= parts <= total / chunk + tiles: the answer lies between these bounds.
    low = std::max(low, static_cast<std::uint32_t>(total / most));
    if (most > all_tiles) {
      high = std::min(high, std::max(low, static_cast<std::uint32_t>(total / (most - all_tiles)) + 1));
    }
  }
  // Galloping from the guess, then bisection.
  std::uint32_t stride = 1;
  bool galloping = guess >= low && guess < high;
  std::uint32_t middle = guess;
  while (low < high) {
    if (!galloping) middle = low + (high - low) / 2;
    // Lengths are whole: with half a token taken off, the quotient is never near an integer and truncates as
    // a division would.
    const double reciprocal = 1.0 / middle;
    const double offset = middle - 0.5;
    double needed = 0;
    for (std::size_t i = 0; i < count; ++i) {
      needed += tiles[i] * static_cast<double>(static_cast<std::int32_t>((tokens[i] + offset) * reciprocal));
    }
    const bool fits = needed <= most;
    if (fits) {
      high = middle;
    } else {
      low = middle + 1;
    }
    if (galloping) {
      const std::uint32_t next = fits ? middle - std::min(middle, stride) : middle + stride;
      stride *= 2;
      galloping = stride <= 64 && next >= low && next < high;
      middle = next;
    }
  }
  guess = low;
  demand_tiles_.clear();
  demand_tokens_.clear();
  return low;
}

void FlashInferBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  if (layer.form == AttentionForm::kMlaAbsorbed) {
    plan_flashinfer_mla_decode(lengths, layer.num_q_heads, multiprocessors(), plan);
    plan.widens_kv = layer.widens_latent();
    return;
  }
  const std::uint32_t group = std::max(1U, layer.num_q_heads / layer.num_kv_heads);
  plan.tensor_cores = group >= 4 || layer.fp8_kv();
  const std::uint32_t row_blocks =
      plan.tensor_cores ? ceil_div(group, flashinfer_tile_q(group, layer.head_dim)) : 1;
  plan.rows = plan.tensor_cores ? flashinfer_tile_q(group, layer.head_dim) : group;
  plan.blocks_per_split = layer.num_kv_heads * row_blocks;
  add_decode_items(layer, plan);
  const std::uint32_t resident =
      plan.tensor_cores
          ? kBlocksPerMultiprocessor
          : decode_blocks_per_multiprocessor(
                layer, profile().shared_memory_bytes() > 0 ? profile().shared_memory_bytes() : 100e3);
  plan.resident = resident;
  const std::uint64_t room = std::uint64_t{resident} * multiprocessors() / layer.num_kv_heads;
  const bool captured = metadata().capture_bucket > 0;
  plan.merge = captured && plan.tensor_cores;
  if (!plan.tensor_cores && plan.items.size() >= room) return;
  plan.merge = captured;
  for (const DecodeItem& item : plan.items) add_demand(row_blocks, item.kv_end - item.kv_begin);
  const std::uint32_t chunk = smallest_chunk(room, decode_guess_);
  const double reciprocal = 1.0 / chunk;
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    item.splits = static_cast<std::uint32_t>((double(tokens) + chunk - 0.5) * reciprocal);
    item.split_tokens = std::min(chunk, tokens);
    plan.merge = plan.merge || item.splits > 1;
  }
}

void FlashInferBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  add_extend_items(plan);
  if (layer.form == AttentionForm::kMlaAbsorbed || layer.form == AttentionForm::kMlaExpanded) {
    plan_flashinfer_mla_extend(profile(), layer, plan);
    return;
  }
  const std::uint32_t group = std::max(1U, layer.num_q_heads / layer.num_kv_heads);
  std::uint64_t tokens = 0;
  bool cached = false;
  for (const ExtendItem& item : plan.items) {
    tokens += item.q_len;
    cached = cached || item.prefix != 0;
  }
  const double packed = double(tokens) * group / double(plan.items.size());
  const std::uint32_t paged_rows = flashinfer_tile_q(packed, layer.head_dim);
  const std::uint32_t paged_tile = std::max(1U, paged_rows / group);
  const bool masked = verifies_drafts(metadata().forward_mode);
  const bool paged = metadata().in_pieces;
  const bool fa3_template = !masked && !paged && generation() == GpuGeneration::kHopper;
  const bool cutlass = !masked && !paged && generation() == GpuGeneration::kBlackwell &&
                       (layer.head_dim == 64 || layer.head_dim == 128 || layer.head_dim == 192);
  const std::uint64_t room = std::uint64_t{kBlocksPerMultiprocessor} * multiprocessors() / layer.num_kv_heads;
  const auto tiles = [&](const ExtendItem& item) { return ceil_div(item.q_len, paged_tile); };
  if (fa3_template) {
    plan.rows = plan.tile_m = 128;  // heads are not packed
    plan.head_blocks = layer.num_q_heads;
    plan.tile_n = layer.head_dim >= 256 ? 80 : 128;
  } else if (cutlass) {
    plan.rows = plan.tile_m = 256;
    plan.head_blocks = layer.num_q_heads;
    plan.tile_n = 128;
  } else {
    plan.rows = paged_rows;
    plan.tile_m = paged_tile;
    plan.head_blocks = layer.num_kv_heads * ceil_div(group, paged_rows);
    plan.tile_n = layer.head_dim >= 256 ? 32 : 64;
    const std::uint32_t window = layer.sliding_window;
    for (const ExtendItem& item : plan.items) {
      const std::uint32_t seen = item.q_len + (window != 0 || masked || paged ? item.prefix : 0);
      add_demand(tiles(item), window != 0 ? std::min(seen, window + paged_rows) : seen);
    }
    plan.kv_chunk = smallest_chunk(room, extend_guess_);
    plan.prefix_kernel = paged;
  }
  // A window's layers read prefix and new tokens in one paged pass.
  if (!cached || masked || paged || layer.sliding_window != 0) return;
  plan.prefix_rows = paged_rows;
  plan.prefix_tile_m = paged_tile;
  plan.prefix_head_blocks = layer.num_kv_heads * ceil_div(group, paged_rows);
  // Tiles of requests without a prefix take up room, too: beside a fresh chunk no prefix may be split at all.
  for (const ExtendItem& item : plan.items) add_demand(tiles(item), std::max(1U, item.prefix));
  plan.prefix_chunk = smallest_chunk(room, prefix_guess_);
}

// The ragged wrapper reads new tokens as they were made, in 16 bit, whatever the cache's format; without a
// prefix it reads nothing else.
KernelCost FlashInferBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                          const LayerShape& layer) {
  const bool dense = layer.form == AttentionForm::kMha && plan.prefix_rows == 0 && plan.kv_chunk == 0 &&
                     generation() == GpuGeneration::kHopper;
  if (!dense) return model.extend(plan, layer);
  LayerShape read = layer;
  read.kv_format = NumberFormat::kBf16;
  return model.extend(plan, read);
}

// Host time of plan(), a fixed part and a walk over the batch: least squares over the plan_us column of
// tests/calibration/measured/h200-sxm_attention.csv.
double FlashInferBackend::plan_host_seconds() const {
  const auto requests =
      static_cast<double>(metadata().extend_lens.size() + metadata().decode_seq_lens.size());
  return metadata().forward_mode == proto::DECODE ? 180e-6 + 3.0e-6 * requests : 420e-6 + 8.6e-6 * requests;
}

}  // namespace

extern const BackendDescription flashinfer = {
    .row =
        {.name = "flashinfer",
         .title = "FlashInfer",
         .mla_title = "FlashInfer MLA",
         .mha_place = 1,
         .mla_place = 1,
         .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                         GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
         .excluded = true,
         .has_mha = true,
         .mha_fp8 = Support::kYes,
         .mha_spec = Support::kYes,
         .mha_spec_topk = Support::kYes,
         .sliding_window = Support::kYes,
         .has_mla = true,
         .mla_page_sizes = {1},
         .mla_fp4 = Support::kYes,
         .mla_chunked_prefix = Support::kYes,
         .mla_spec = Support::kYes,
         .linear_layers = true,
         .draft_extend_graphs = DraftExtendGraphs::kSinceFlashInfer,
         .paged_trees = true,
         .decodes_profiled_qwen3_vl = true,
         .host_constant = "plan_host_seconds",
         // The plan's arrays are copied to the device: one copy and the kernel that builds the page indices.
         .plan_kernels = 2,
         .mla_rule = {.prefix = MlaPrefix::kFromThreshold, .one_shot = true, .ragged = true},
         .beside_host_kernels = BesideHostKernels::kFirst},
    .create = create_backend<FlashInferBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      constexpr GpuGenerations kOlder = {GpuGeneration::kAmpere, GpuGeneration::kAda};
      if (selection.mla) return "";
      if (selection.generation == GpuGeneration::kBlackwell && selection.short_convolutions)
        return "LFM2 on Blackwell: flashinfer is SGLang's default";  // model_overrides/lfm2.py
      if (selection.generation == GpuGeneration::kBlackwell && selection.spec_topk > 0)
        return "Blackwell with speculative decoding: trtllm_mha is SGLang's default with "
               "--speculative-eagle-topk 1 only, and flashinfer its other default";
      if (selection.generation == GpuGeneration::kHopper && selection.spec_topk > 1 &&
          selection.spec_topk_given)
        return "Hopper with --speculative-eagle-topk above 1: flashinfer is SGLang's default instead of fa3";
      if (kOlder.contains(selection.generation))
        return "MHA model on a GPU before Hopper: flashinfer is SGLang's default";
      if (selection.generation == GpuGeneration::kBlackwellSm120)
        return "MHA model on SM120, for which SGLang has no trtllm_mha: flashinfer is its default";
      return "";
    },
};

}  // namespace tpsim::attention::backends
