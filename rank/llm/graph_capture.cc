#include "rank/llm/graph_capture.h"

#include <algorithm>
#include <vector>

#include "attention/backend.h"
#include "proto/forward.pb.h"

namespace tpsim::rank {
namespace {

constexpr std::uint32_t kPasses = 3;          // two to warm up, one captured
constexpr double kPoolBytes = 0.19e9;         // of the pool, whatever is captured
constexpr double kLayerGraphBytes = 0.194e6;  // of one layer in one graph
constexpr double kLogitBytes = 4;

struct Range {
  std::uint32_t first, last, step;
};
// The sizes of all ranges up to `most`.
std::vector<std::uint32_t> sizes_in(std::span<const Range> ranges, std::uint32_t most) {
  std::vector<std::uint32_t> sizes;
  for (const Range& range : ranges) {
    for (std::uint64_t size = range.first; size <= std::min(range.last, most); size += range.step)
      sizes.push_back(static_cast<std::uint32_t>(size));
  }
  return sizes;
}

}  // namespace

GraphCapture graph_capture_cost(const ModelConfig& model, std::span<const std::uint32_t> sizes,
                                RankModel& forward, const proto::HostProfile::GraphCapture& host,
                                std::uint32_t verified) {
  GraphCapture capture;
  if (sizes.empty()) return capture;
  const std::uint32_t largest = *std::max_element(sizes.begin(), sizes.end());
  const std::vector<std::uint32_t> lengths(largest, 1);
  const std::vector<std::uint32_t> drafts(largest, verified);
  for (const std::uint32_t size : sizes) {
    attention::ForwardMetadata batch;
    if (verified > 0) {
      batch.forward_mode = proto::TARGET_VERIFY;
      batch.extend_prefix_lens = std::span(lengths).first(size);
      batch.extend_lens = std::span(drafts).first(size);
    } else {
      batch.forward_mode = proto::DECODE;
      batch.decode_seq_lens = std::span(lengths).first(size);
    }
    const StepCost step = forward.forward(batch);
    capture.seconds += kPasses * (step.attention + step.gemm + step.collective + step.other + step.launch +
                                  step.host_seconds);
    capture.seconds += host.layer_seconds() * model.num_layers;
  }
  capture.bytes =
      static_cast<std::uint64_t>(kPoolBytes + double(sizes.size()) * model.num_layers * kLayerGraphBytes +
                                 double(largest) * std::max(1U, verified) * model.vocab_size * kLogitBytes);
  return capture;
}

std::uint32_t PrefillGraphs::bucket(std::uint32_t rows) const {
  const auto found = std::lower_bound(tokens.begin(), tokens.end(), rows);
  if (rows == 0 || found == tokens.end()) return 0;
  return limit_padding && *found > std::uint64_t{rows} * 2 ? 0 : *found;
}

std::vector<std::uint32_t> capture_batch_sizes(std::uint32_t max_bs, bool speculative) {
  constexpr Range kPlain[] = {{1, 2, 1}, {4, 12, 4}, {16, 256, 8}, {272, 511, 16}, {512, UINT32_MAX, 32}};
  constexpr Range kDense[] = {{1, 8, 1}, {10, 32, 2}, {40, 64, 4}, {72, 256, 8}, {272, UINT32_MAX, 16}};
  std::vector<std::uint32_t> sizes = sizes_in(speculative ? kDense : kPlain, max_bs);
  if (sizes.empty() || sizes.back() != max_bs) sizes.push_back(max_bs);
  return sizes;
}

std::vector<std::uint32_t> capture_prefill_tokens(std::uint32_t max_tokens) {
  constexpr Range kRanges[] = {{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                               {576, 1024, 64}, {1280, 4096, 256}, {4608, UINT32_MAX, 512}};
  return sizes_in(kRanges, max_tokens);
}

}  // namespace tpsim::rank
