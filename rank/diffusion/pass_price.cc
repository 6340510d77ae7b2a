#include "rank/diffusion/pass_price.h"

#include <algorithm>
#include <cmath>

namespace tpsim::rank {
namespace {

using OperatorKind = PassOperator::Kind;
namespace constants = diffusion;

// Of the dense rate of 16 bit.
double convolution_share(const PassOperator& op, const PassSetting& s) {
  double share = constants::kOddChannels;
  if (s.even_channels) {
    const double channels = std::min(static_cast<double>(op.n), op.channels);
    share = std::begin(constants::kConvolutions)->share;
    const auto* below = std::begin(constants::kConvolutions);
    for (const auto& at : constants::kConvolutions) {
      if (channels < at.channels) break;
      share = at.share;
      below = &at;
    }
    if (const auto* const above = below + 1;
        channels > below->channels && above != std::end(constants::kConvolutions))
      share += (above->share - below->share) * std::log2(channels / below->channels);
  }
  if (s.vae != nullptr) share *= s.vae->convolution * (s.fp32 ? s.vae->fp32 : 1);
  return share;
}

}  // namespace

void PassCost::add(std::string_view name, const KernelCost& cost, double times) {
  auto at = std::ranges::find(operators, name, &OperatorShare::name);
  if (at == operators.end()) {
    operators.push_back({.name = std::string(name)});
    at = std::prev(operators.end());
  }
  at->seconds += cost.seconds * times;
  at->flops += cost.flops * times;
  at->bytes += cost.bytes * times;
  at->kernels += cost.launches * times;
}

void PassCost::add(const PassCost& other, double times) {
  device += other.device * times;
  host += other.host * times;
  seconds += other.seconds * times;
  sent += other.sent * times;
  for (const OperatorShare& o : other.operators) {
    KernelCost cost;
    cost.seconds = o.seconds, cost.flops = o.flops, cost.bytes = o.bytes;
    add(o.name, cost, times);
    std::ranges::find(operators, o.name, &OperatorShare::name)->kernels += o.kernels * times;
  }
}

struct PassPrice::Sum {
  PassCost cost;
  double launches = 0, host_launches = 0;
  void add(std::string_view name, const KernelCost& kernel, double times) {
    cost.add(name, kernel, times);
    launches += kernel.launches * times;
  }
  // Kernels whose launches are counted with the exchange.
  void exchange(std::string_view name, const KernelCost& kernel, double times) {
    cost.add(name, kernel, times);
  }
};

PassPrice::PassPrice(const proto::HardwareProfile& profile)
    : costs_(profile),
      clock_(profile),
      dense_flops_(profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()) {}

KernelCost PassPrice::product(const PassOperator& op, const PassSetting& setting,
                              const WeightFormat& weights) const {
  const std::uint64_t tp = setting.tp;
  const std::uint64_t n = op.cut == Cut::kOutputs ? (op.n + tp - 1) / tp : op.n;
  const std::uint64_t k = op.cut == Cut::kInputs ? (op.k + tp - 1) / tp : op.k;
  KernelCost cost = costs_.gemm(op.rows, n, k, weights);
  if (!setting.fp32) return cost;
  cost.bytes *= 2;
  const double seconds =
      costs_.fp32_product(op.rows, static_cast<double>(n), static_cast<double>(k)) / constants::kFp32Products;
  cost.seconds =
      std::max({seconds, cost.bytes / bandwidth_, seconds > 0 ? 0 : cost.flops / dense_flops_ * 16});
  return cost;
}

// Products of queries and keys, and a softmax between them that is read and written.
KernelCost PassPrice::plain_attention(const PassOperator& op, const PassSetting& setting) const {
  KernelCost cost;
  const double scores = setting.batch * op.queries * op.keys * op.heads;
  cost.flops = 4 * scores * op.head_dim;
  const double rate =
      (setting.fp32 ? constants::kFp32WideAttention : constants::kWideAttention) * dense_flops_;
  cost.seconds = std::max(cost.flops / rate, costs_.elementwise(0).seconds);
  cost.bytes = 4 * setting.batch * op.queries * op.heads * op.head_dim * (setting.fp32 ? 4 : 2);
  cost.launches = 1;
  return cost;
}

void PassPrice::self_attention(const PassOperator& op, const PassSetting& s, Sum& sum) const {
  if (s.self == nullptr) return sum.add("self_attention", plain_attention(op, s), op.times);
  const double sp = op.exchanged ? s.ulysses * s.ring * s.kv_gather : 1;
  attention::DiffusionCall call{
      .batch = s.batch, .queries = op.queries, .keys = op.keys, .head_dim = op.head_dim};
  call.text = static_cast<std::uint32_t>(op.text);
  call.layers = static_cast<std::uint32_t>(op.times);
  call.step = s.step;
  call.steps = s.steps;
  if (op.exchanged && s.grid[0] > 0) call.grid = s.grid;
  const std::uint32_t heads = (op.heads + s.tp - 1) / s.tp;
  call.heads = op.exchanged ? (heads + s.ulysses - 1) / s.ulysses : heads;
  // What one GPU holds of a sample's sequence.
  const double image = op.queries - op.text;
  const double own = part(image, sp) + (s.shards_text ? part(op.text, sp) : op.text);
  double hops = 1;
  if (op.exchanged && s.kv_gather > 1) call.queries = own;
  if (op.exchanged && s.ring > 1) {
    hops = s.ring;
    call.queries = part(op.queries, s.ring);
    call.keys = part(op.keys, s.ring);
  }
  double attention = 0;  // seconds of one hop, mean over layers
  // Layers that refine the text alone have no grid to select in.
  const bool gridless = !op.exchanged && s.self->backend().sparse && s.cross != nullptr;
  const attention::DiffusionAttention& kernel = gridless ? *s.cross : *s.self;
  const bool layered = kernel.backend().sparse;
  for (std::uint32_t layer = 0; layer < (layered ? call.layers : 1); ++layer) {
    call.layer = layer;
    const double times = layered ? 1 : op.times;
    const KernelCost cost = kernel.layer(call);
    sum.add("self_attention", cost, times * hops);
    attention += cost.seconds * times / op.times;
  }
  if (sp <= 1) return;
  const double row = s.batch * heads * op.head_dim * kElement;  // bytes of a token
  const auto copies = [&](double bytes, double times) {
    sum.exchange("elementwise", costs_.elementwise(2 * constants::kPermuted * bytes), times);
  };
  if (s.ulysses > 1) {
    const double bytes = own * row;
    sum.exchange("ulysses all-to-all", costs_.all_to_all(bytes, s.ulysses), 4 * op.times);
    sum.cost.sent += 4 * op.times * bytes * (s.ulysses - 1) / s.ulysses;
    copies(bytes, 8 * op.times);
    sum.host_launches += constants::kUlyssesLaunches * op.times;
  }
  if (s.ring > 1) {
    const double keys = 2 * call.keys * row / s.ulysses;
    const KernelCost send = costs_.send(keys);
    KernelCost exposed = send;
    exposed.seconds = std::max(send.seconds - attention, 0.0) + constants::kRingExposed * send.seconds;
    sum.exchange("ring", exposed, op.times * (hops - 1));
    sum.cost.sent += op.times * (hops - 1) * keys;
    // Partial outputs, merged in fp32.
    copies(call.queries * row / s.ulysses, 2.5 * op.times * (hops - 1));
    copies(call.queries * row / s.ulysses, 3 * op.times);
    const bool padded = s.shards_text && std::fmod(op.text, sp) > 0;
    sum.host_launches +=
        (padded ? constants::kPaddedRing : 1) * constants::kRingLaunches * op.times * (hops - 1);
  }
  if (s.kv_gather > 1) {
    const double bytes = 2 * own * row;
    sum.exchange("kv gather", costs_.all_gather(bytes, s.kv_gather), op.times);
    sum.cost.sent += op.times * bytes * (s.kv_gather - 1);
    copies(bytes, op.times);
    sum.host_launches += constants::kGatherLaunches * op.times;
  }
}

PassCost PassPrice::price(const OperatorList& list, const PassSetting& s) const {
  Sum sum;
  const double element = s.fp32 ? 4 : kElement;
  for (const PassOperator& op : list.operators()) {
    switch (op.kind) {
      case OperatorKind::kProduct: {
        const double kept = s.weights.quantized() ? op.times * s.kept.share(op.module) : 0;
        if (kept < op.times) sum.add("gemm", product(op, s, s.weights), op.times - kept);
        if (kept > 0) sum.add("gemm", product(op, s, {}), kept);
        if (op.cut != Cut::kInputs || s.tp == 1) break;
        const double bytes = op.rows * static_cast<double>(op.n) * element;
        sum.add("all-reduce", costs_.all_reduce(bytes, s.tp), op.times);
        sum.cost.sent += op.times * costs_.all_reduce_sent(bytes, s.tp);
        break;
      }
      case OperatorKind::kElementwise: {
        double bytes = op.elements * element;
        if (s.vae != nullptr) bytes *= s.fp32 ? s.vae->fp32_traffic : s.vae->traffic;
        KernelCost cost = costs_.elementwise(bytes);
        if (s.compile) cost.seconds *= constants::kCompiled;
        sum.add("elementwise", cost, op.times);
        break;
      }
      case OperatorKind::kSelfAttention:
        self_attention(op, s, sum);
        break;
      case OperatorKind::kCrossAttention: {
        attention::DiffusionCall call{.batch = s.batch,
                                      .queries = op.queries,
                                      .keys = op.keys,
                                      .heads = (op.heads + s.tp - 1) / s.tp,
                                      .head_dim = op.head_dim,
                                      .cross = true,
                                      .layers = static_cast<std::uint32_t>(op.times),
                                      .step = s.step,
                                      .steps = s.steps};
        const bool priced = s.cross != nullptr && op.queries > 0 && op.keys > 0;
        sum.add("cross_attention", priced ? s.cross->layer(call) : plain_attention(op, s), op.times);
        break;
      }
      case OperatorKind::kConvolution: {
        KernelCost cost;
        cost.flops = 2 * op.rows * static_cast<double>(op.n) * static_cast<double>(op.k);
        const double share = convolution_share(op, s);
        cost.bytes = element * op.rows * static_cast<double>(op.n);
        cost.seconds = std::max(cost.flops / (share * dense_flops_), costs_.elementwise(cost.bytes).seconds);
        cost.launches = 1;
        sum.add("convolution", cost, op.times);
        break;
      }
    }
  }
  PassCost cost = std::move(sum.cost);
  for (const OperatorShare& o : cost.operators) cost.device += o.seconds;
  double launches = s.issued > 0 ? s.issued : sum.launches;
  if (s.compile) launches *= constants::kCompiled;
  const IssuedTime time = clock_.eager(cost.device, launches,
                                       (launches * s.launch + sum.host_launches) * clock_.launch_seconds());
  cost.device = time.device;
  cost.host = time.issue;
  cost.seconds = time.seconds();
  return cost;
}

}  // namespace tpsim::rank
