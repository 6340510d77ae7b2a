#include "rank/llm/two_batch_overlap.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

namespace tpsim::rank {
namespace {

// Multiprocessors of DeepEP's kernels for throughput (its Buffer.num_sms), which SGLang takes from DeepGEMM's
// for the length of an overlapped prefill.
constexpr double kExchangingMultiprocessors = 20;
// Of what DeepEP's kernels for low latency take, the share in which they keep the multiprocessors: 60 of the
// 192 us to dispatch 128 tokens on 64 ranks (LMSYS's report of DeepSeek on 96 H100s, 5 May 2025, "detail
// breakdown"; DeepEP's docs/legacy.md). The rest is in flight.
constexpr double kOnMultiprocessors = 60.0 / 192;

constexpr std::uint32_t kPrefillStages = 2, kDecodeStages = 5;  // of a layer, to its next yield
constexpr std::uint32_t kDecodeAhead = 2;                       // stages

// The GPU and its network, which both halves share.
struct Clocks {
  double compute = 0, network = 0;
};

class HalfRun {
 public:
  HalfRun(const HalfLayer& layer, std::uint32_t layers, bool decode)
      : layer_(layer), stages_(layers * (decode ? kDecodeStages : kPrefillStages) + 1), decode_(decode) {}

  std::uint32_t stages() const { return stages_; }
  void next(Clocks& clocks) {
    const bool first = stage_ == 0, last = stage_ + 1 == stages_;
    const std::uint32_t of_layer = stage_++ % (decode_ ? kDecodeStages : kPrefillStages);
    if (decode_)
      decode(clocks, of_layer, last);
    else
      prefill(clocks, of_layer, first, last);
  }

 private:
  void compute(Clocks& clocks, double seconds) const { clocks.compute += seconds; }
  void send(Clocks& clocks, double on_device, double flight) {
    clocks.compute += on_device / 2;
    arrival_ = clocks.network = std::max(clocks.network, clocks.compute) + flight;
  }
  void receive(Clocks& clocks, double on_device) const {
    clocks.compute = std::max(clocks.compute, arrival_) + on_device / 2;
  }
  void run_experts(Clocks& clocks) {
    receive(clocks, layer_.dispatching);
    compute(clocks, layer_.experts);
    send(clocks, layer_.combining, layer_.combine);
  }
  void prefill(Clocks& clocks, std::uint32_t of_layer, bool first, bool last) {
    if (of_layer == 1) return run_experts(clocks);
    if (!first) {
      compute(clocks, layer_.shared);
      receive(clocks, layer_.combining);
    }
    if (last) return;
    compute(clocks, layer_.prepare + layer_.core);
    send(clocks, layer_.dispatching, layer_.dispatch);
  }
  void decode(Clocks& clocks, std::uint32_t of_layer, bool last) {
    switch (of_layer) {
      case 0:
        return compute(clocks, last ? 0 : layer_.prepare);
      case 1:
        return compute(clocks, layer_.core);
      case 2:
        send(clocks, layer_.dispatching, layer_.dispatch);
        return compute(clocks, layer_.shared);
      case 3:
        return run_experts(clocks);
      default:
        return receive(clocks, layer_.combining);
    }
  }

  const HalfLayer& layer_;
  std::uint32_t stages_, stage_ = 0;
  bool decode_;
  double arrival_ = 0;
};

// As many requests for the first half as leave the sums of both closest.
std::size_t balanced_cut(std::span<const std::uint32_t> lens) {
  const auto all = std::accumulate(lens.begin(), lens.end(), std::int64_t{0});
  std::int64_t left = 0, least = std::numeric_limits<std::int64_t>::max();
  std::size_t best = 0;
  for (std::size_t i = 1; i < lens.size(); ++i) {
    left += lens[i - 1];
    const std::int64_t apart = std::abs(2 * left - all);
    if (apart > least) break;
    least = apart;
    best = i;
  }
  return best;
}

std::uint32_t sum(std::span<const std::uint32_t> values) {
  return std::accumulate(values.begin(), values.end(), 0U);
}

// Of a rank without requests: what the others do.
bool prefills(const attention::ForwardMetadata& metadata) {
  if (metadata.forward_mode == proto::IDLE) return metadata.is_extend_in_batch;
  return metadata.forward_mode == proto::EXTEND;
}

}  // namespace

double two_batch_seconds(const HalfLayer& a, const HalfLayer& b, std::uint32_t layers, bool decode) {
  HalfRun first(a, layers, decode), second(b, layers, decode);
  const std::uint32_t ahead = decode ? kDecodeAhead : 0;
  Clocks clocks;
  for (std::uint32_t i = 0; i < first.stages() + ahead; ++i) {
    if (i < first.stages()) first.next(clocks);
    if (i >= ahead) second.next(clocks);
  }
  return clocks.compute;
}

ExtendCut cut_extend(std::span<const std::uint32_t> lens, double threshold) {
  const std::size_t balanced = balanced_cut(lens);
  const std::uint32_t all = sum(lens), left = sum(lens.first(balanced)), half = all / 2;
  if (left < all * threshold || left > all * (1 - threshold)) {
    std::size_t whole = 0;  // requests within the first half
    for (std::uint32_t seen = 0; whole < lens.size() && seen + lens[whole] <= half; ++whole)
      seen += lens[whole];
    if (whole + 1 <= half) return {whole + 1, half};
  }
  return {balanced, left};
}

TwoBatchForward::TwoBatchForward(std::unique_ptr<ModeledForward> model, const proto::HardwareProfile& profile,
                                 std::uint32_t expert_layers, double threshold)
    : model_(std::move(model)),
      expert_layers_(expert_layers),
      threshold_(threshold),
      fewer_multiprocessors_(profile.multiprocessors() /
                             (profile.multiprocessors() - kExchangingMultiprocessors)) {}

// All ranks' passes are of one kind or are not cut; of the others' halves only the sums are known here.
bool TwoBatchForward::cut(const attention::ForwardMetadata& whole) {
  const bool idle = whole.forward_mode == proto::IDLE;
  const bool extends = prefills(whole);
  if (!extends && !idle && whole.forward_mode != proto::DECODE) return false;
  if (whole.is_verify_in_batch || (whole.is_extend_in_batch && (!extends || whole.is_decode_in_batch)))
    return false;
  for (Half& half : halves_) {
    half.prefix_lens.clear();
    half.lens.clear();
    half.seq_lens.clear();
    half.metadata = whole;
  }
  if (extends && !idle) {
    const ExtendCut at = cut_extend(whole.extend_lens, threshold_);
    if (at.tokens == 0 || at.tokens == sum(whole.extend_lens)) return false;
    std::uint32_t left = at.tokens;
    for (std::size_t i = 0; i < whole.extend_lens.size(); ++i) {
      const std::uint32_t prefix = whole.extend_prefix_lens[i], tokens = whole.extend_lens[i];
      const std::uint32_t here = std::min(left, tokens);
      const auto add = [&](Half& half, std::uint32_t before, std::uint32_t count) {
        if (count == 0) return;
        half.prefix_lens.push_back(before);
        half.lens.push_back(count);
      };
      add(halves_[0], prefix, here);
      add(halves_[1], prefix + here, tokens - here);
      left -= here;
    }
  } else if (!extends) {
    const auto lens = whole.decode_seq_lens;
    const std::size_t padded = whole.capture_bucket > 0 ? whole.capture_bucket : lens.size();
    const std::size_t at = padded / 2;
    if (at == 0) return false;
    const auto first = static_cast<std::ptrdiff_t>(std::min(at, lens.size()));
    halves_[0].seq_lens.assign(lens.begin(), lens.begin() + first);
    halves_[1].seq_lens.assign(lens.begin() + first, lens.end());
    if (halves_[1].seq_lens.empty()) {  // padding alone
      if (whole.global_num_tokens.empty()) return false;
      halves_[1].metadata.forward_mode = proto::IDLE;
    }
    if (whole.capture_bucket > 0) {
      halves_[0].metadata.capture_bucket = static_cast<std::uint32_t>(at);
      halves_[1].metadata.capture_bucket = static_cast<std::uint32_t>(padded - at);
    }
  }
  for (std::uint32_t i = 0; i < 2; ++i) {
    Half& half = halves_[i];
    const auto halved = [i](std::span<const std::uint32_t> all, std::vector<std::uint32_t>& out) {
      out.assign(all.begin(), all.end());
      for (std::uint32_t& count : out) count = (count + 1 - i) / 2;
    };
    halved(whole.global_num_tokens, half.global);
    halved(whole.global_num_tokens_for_logprob, half.logits);
    half.metadata.extend_prefix_lens = half.prefix_lens;
    half.metadata.extend_lens = half.lens;
    half.metadata.decode_seq_lens = half.seq_lens;
    half.metadata.global_num_tokens = half.global;
    half.metadata.global_num_tokens_for_logprob = half.logits;
  }
  return true;
}

StepCost TwoBatchForward::forward(const attention::ForwardMetadata& metadata) {
  StepCost step = model_->forward(metadata);
  if (!cut(metadata)) return step;
  const PassParts whole = model_->parts();
  const bool decode = !prefills(metadata);
  std::array<HalfLayer, 2> layers;
  const double n = expert_layers_;
  StepCost both;
  double gaps = 0;
  // Once for both halves: dense MLPs, which come before, and the head.
  double gemm = whole.outside;
  for (std::size_t i = 0; i < 2; ++i) {
    StepCost half = model_->forward(halves_[i].metadata);
    const PassParts& parts = model_->parts();
    const double slower = parts.low_latency ? 1 : fewer_multiprocessors_;
    const double flight = parts.low_latency ? 1 - kOnMultiprocessors : 1;
    const double gap =
        half.device_seconds - parts.replay - (half.attention + half.gemm + half.collective + half.other);
    // Products that the board's power limit slows do not wait for multiprocessors as well.
    half.gemm = std::max((half.gemm - parts.throttling) * slower, half.gemm) - parts.outside * slower;
    half.attention *= slower;
    HalfLayer& layer = layers[i];
    layer = {.prepare = parts.prepare * slower / n,
             .shared = parts.shared * slower / n,
             .experts = parts.routed * slower / n,
             .dispatch = parts.dispatch * flight / n,
             .combine = parts.combine * flight / n,
             .dispatching = parts.dispatch * (1 - flight) / n,
             .combining = parts.combine * (1 - flight) / n};
    const double apart = (layer.prepare + layer.shared + layer.experts) * n + parts.dispatch + parts.combine;
    layer.core = (half.attention + half.gemm + half.collective + half.other + gap - apart) / n;
    gaps += gap;
    gemm += half.gemm;
    both += half;
  }
  const double device =
      whole.outside + two_batch_seconds(layers[0], layers[1], expert_layers_, decode) + whole.replay;
  const double issued = metadata.capture_bucket > 0 ? 0 : both.issue_seconds;
  step.attention = both.attention;
  step.gemm = gemm;
  step.other = both.other;
  step.collective = std::max(0.0, device - both.attention - gemm - both.other - gaps - whole.replay);
  step.launch = gaps + whole.replay + std::max(0.0, issued - device);
  step.flops = both.flops;
  step.memory_bytes = both.memory_bytes;
  step.communicated_bytes = both.communicated_bytes;
  step.network_bytes = both.network_bytes;
  step.network_seconds = both.network_seconds > 0 ? step.collective : 0;
  step.device_seconds = device;
  step.issue_seconds = both.issue_seconds;
  if (metadata.capture_bucket == 0) step.launches = both.launches;
  return step;
}

}  // namespace tpsim::rank
