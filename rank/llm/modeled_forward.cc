#include "rank/llm/modeled_forward.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/base/archive.h"
#include "rank/config/weight_format.h"
#include "rank/cost/grouped_experts.h"

namespace tpsim::rank {
namespace {

// Kernels of one layer that a pass issues on top of those that are priced one by one: their bytes are
// counted with a neighbour's. Counted in SGLang 0.5.12's models/deepseek_v2.py and fused_moe_triton.
constexpr double kMlaIssued = 4;  // norm of the latent, copies of rotated q and k, k put together
// DeepSeek V4 (models/deepseek_v4.py): norm of the low rank, norm and rotation of queries, and of the latent
// on its way to the cache, two of the compressor, rotation of the output back, inputs of four products
// rounded.
constexpr double kCompressedIssued = 10;
constexpr double kMoeIssued = 3;     // second kernel of the alignment, activation, sum over the experts
constexpr double kSharedIssued = 3;  // activation of the shared experts, scaling, sum with the routed ones
constexpr double kGroupedTopK = 7;   // DeepSeek V2's grouped_topk_gpu, of torch.compile: softmax and the best
                                     // of each group, two top-k, scatter, mask, two casts
// Its device's seconds, from behind the gate's product to the alignment, in h200-sxm_layers.csv with 1 to 128
// requests.
constexpr double kGroupedTopKSeconds = 17e-6;
constexpr double kAppendedKernels = 7;  // two paddings of two each, a sum, its scaling, where it goes
// torch.topk's two kernels, and the others of Gemma 4's routing: two norms, a scaling, a softmax, experts'
// scales fetched and applied, two casts (models/gemma4_causal.py). gemma-4-26b-a4b on an H200 decodes a token
// of one request in 5.7 ms where 4.5 were predicted without them (our server and published.csv's).
constexpr double kTorchTopKSeconds = 20e-6;
constexpr double kTorchRouterKernels = 8;
// biased_grouped_topk_impl of torch.compile: the device's seconds of its fourteen kernels (sigmoid, two top-k
// of groups and their mask, the top-k itself, random ids of shared experts, weights, casts), each bound by
// its launch, and the host's time of its guards and launches, in launches. GLM-4.6 against Qwen3-235B, SGLang
// 0.5.6 on eight B200s with Triton's default experts and one request in flight (published.csv): 14.8 and
// 10.3 ms a token where 10.3 and 10.4 were predicted without it; first tokens after 140 to 160 ms and 62 to
// 65 (0.5.8.post1 decodes GLM-4.6 as fast). Since it stands beside fused shared experts alone (0.5.12) it is
// faster: 39 us from the first kernel to behind the last in a profile of glm-4.7-flash (0.5.23, H200).
constexpr double kCompiledRouterSeconds = 51e-6, kBesideSharedSeconds = 39e-6;
constexpr double kCompiledRouterIssued = 31;
// Python of the call of an fp8 product in blocks (scales, DeepGEMM's choice of a kernel), in launches: eager
// prefills of 64 and 1,024 tokens by a DeepSeek-V3 of 8 layers and 32 experts took 2.3 ms a layer (SGLang
// 0.5.12, H200, flashinfer), six such products among 35 launches.
constexpr double kBlockProductIssued = 2.4;
// A norm by ten of PyTorch's kernels in fp32, and a rotation by four in place of one, profiled in a server of
// gemma-3-12b (SGLang 0.5.12, H200): with 16 rows a norm takes 20 us, 7 of them the mean; 14 more than one
// kernel would is what steps of 1, 16 and 64 requests show. Elements that they move for one of their input:
// with 8,000 rows. The rotation is compiled by itself, a kernel each for queries and keys, but within
// torch.compile's pieces of prefill.
constexpr std::uint32_t kTorchNormKernels = 10;
constexpr double kTorchNormSeconds = 14e-6, kTorchNormElements = 27;
constexpr double kTorchRotations = 4, kTorchRotationElements = 35;
// Seconds less where small kernels overlap (ReleaseRules::small_kernels_overlap), between servers of SGLang
// 0.5.16 and 0.5.23 on H200s: a kernel (llama-3.1-8b decodes in 0.07 ms less with 1, 16 and 32 requests, two
// norms and an activation a layer); alignment of at most so many rows to more than 63 experts (a profile of
// qwen3-30b-a3b: one kernel of 1.5 us, two of 4 and what lies between them); triton_kernels' routing
// (gpt-oss-20b, 0.26 ms with 1 to 64 requests).
constexpr double kStartsEarly = 0.7e-6, kAlignsAtOnce = 3.3e-6, kTritonRouting = 9.4e-6;
constexpr std::uint32_t kAlignedAtOnce = 64;
constexpr double kGathered = 4;  // data-parallel attention: buffers cleared and copied (dp_attention.py)

constexpr double kFusedRows = 2048;  // of a sum over ranks that is fused with its norm (shard.h)
constexpr double kServedRows = 256;  // OperatorCoefficients::served counts beyond

// Launches of a pass in captured pieces: a layer's piece and what surrounds its attention (its kernel, that
// of the cache, copies), counted in a profile of SGLang 0.5.12 on an H200 (llama-3.1-8b, fa3, 1,024 tokens:
// 258 with those before and behind the layers); an all-reduce that splits a piece: another graph, the kernel
// and the events between two streams.
constexpr double kPieceLaunches = 6.5;
constexpr double kInPlaceLaunches = 4;
constexpr double kEndLaunches = 50;
// A kernel that is launched by itself takes a place of 1,024 in the queue, where the launches of pieces fill
// it 264 at a time (SchedulerConfig::launch_queue): eager prefills of deepseek-v2-lite, 850 kernels, are all
// queued while the one before runs, and its tokens are seen as soon as it ends.
constexpr double kEagerLaunch = 264.0 / 1024;

bool is_one_of(const proto::HardwareProfile& profile, attention::GpuGenerations generations) {
  return generations.contains(attention::parse_gpu_generation(profile.architecture()).value());
}
// Programmatic dependent launch, of compute capability 9.0 and above.
constexpr attention::GpuGenerations kLaunchEarly = {attention::GpuGeneration::kHopper,
                                                    attention::GpuGeneration::kBlackwell,
                                                    attention::GpuGeneration::kBlackwellSm120};

}  // namespace

bool dummy_weights_share_experts(const ModelConfig& model, bool fp32_router) {
  if (model.moe.num_layers == 0 || model.norm_plus_one) return false;
  return model.moe.router_bias || model.moe.scoring == ExpertScoring::kSigmoid ||
         (!fp32_router && model.facts.grouped_topk && model.moe.scoring == ExpertScoring::kSoftmaxThenTopK);
}

ModeledForward::ModeledForward(const ModelConfig& model, const proto::HardwareProfile& profile,
                               const Shard& shard, std::unique_ptr<attention::AttentionBackend> backend,
                               Options options)
    : model_(model),
      shard_(shard),
      profile_(profile),
      costs_(profile),
      backend_(std::move(backend)),
      attention_layers_(attention_layers(model_, shard_, options.kv_format, options.sparse_token_bytes)),
      linear_layers_(linear_layers(model_, shard_)),
      gated_delta_(profile, options.linear_attention),
      weights_(weight_list(model_, shard_)),
      clock_(profile),
      piecewise_layer_(profile.piecewise_layer_seconds()),
      prefill_graphs_(std::move(options.prefill_graphs)),
      experts_in_use_(options.experts_in_use),
      expert_load_(std::move(options.expert_load)),
      mega_moe_(options.mega_moe),
      tracks_states_(options.tracks_states),
      hands_selection_over_(options.hands_selection_over),
      small_kernels_overlap_(model.facts.small_kernels_overlap && is_one_of(profile, kLaunchEarly)),
      // models/deepseek_v2.py and the others make it on CUDA alone.
      second_stream_(model.facts.second_stream > 0 && !shard.layout.a2a() &&
                     is_one_of(profile, attention::kCudaGenerations)),
      host_(std::move(options.host)) {
  if (options.fresh_kernels) fresh_kernels_.emplace(std::move(*options.fresh_kernels), host_.compiling());
  const auto power = [&profile](std::string_view name) {
    const bool known = find_efficiency(profile, name) != nullptr;
    return known ? std::optional(operator_coefficients(profile, name)) : std::nullopt;
  };
  power_ = power(kPowerClass);
  power_fp8_ = power(kPowerFp8Class);
  if (model_.is_mla())
    mla_costs_.emplace(model_, shard_, profile_, weight_named(weights_, "kv_b_proj").format);
  if (!options.cuda_graph_bs.empty()) {
    backend_->init_cuda_graph_state(options.cuda_graph_bs.back());
    for (const std::uint32_t bs : options.cuda_graph_bs) {
      backend_->init_forward_metadata_capture_cuda_graph(bs);
      if (!options.two_batches || bs == 1) continue;
      backend_->init_forward_metadata_capture_cuda_graph(bs / 2);
      backend_->init_forward_metadata_capture_cuda_graph(bs - bs / 2);
    }
  }
}

ModeledForward::Dense ModeledForward::price_dense(const PassRows& rows, Latent latent) const {
  Dense dense;
  const ParallelLayout& layout = shard_.layout;
  const Communication communication(model_, shard_, costs_, host_.data_parallel());
  const double m = rows.attention;
  const double hidden = model_.hidden_size;
  const double layers = model_.num_layers;
  // Of a layer with attention, in the mean of their kinds.
  double q = double(shard_.q_heads.count()) * model_.head_dim;
  double kv = double(attention_layers_.front().shape.kv_elements()) / 2;
  // Rotation, norms and pools of DeepSeek V4 are in the price of its attention (attention/backends/dsv4.cc).
  if (model_.is_compressed()) q = kv = 0;
  if (model_.has_kinds_of_heads()) {
    q = kv = 0;
    const double attend = layers - linear_layers_.count;
    for (const AttentionLayers& kind : attention_layers_) {
      q += double(kind.shape.num_q_heads) * kind.shape.head_dim * kind.count / attend;
      kv += double(kind.shape.kv_elements()) / 2 * kind.count / attend;
    }
  }
  const auto add = [&dense](double Dense::*part, const KernelCost& cost, double times) {
    dense.*part += cost.seconds * times;
    dense.flops += cost.flops * times;
    dense.bytes += cost.bytes * times;
    dense.launches += cost.launches * times;
  };
  const auto add_product = [&](MatrixClass kernel, const KernelCost& cost, double times) {
    add(&Dense::gemm, cost, times);
    const bool fp8 = matrix_class(kernel).rate == MatrixClassRow::Rate::kFp8;
    const std::optional<OperatorCoefficients>& power = fp8 ? power_fp8_ : power_;
    if (!power || matrix_class(kernel).rate == MatrixClassRow::Rate::kFp4) return;
    dense.products += cost.seconds * times;
    const double rate = fp8 ? profile_.dense_flops_fp8() : profile_.dense_flops_bf16();
    dense.sustained += cost.flops * times / (rate * power->compute);
  };
  const auto other = [&](double elements, double times) {
    add(&Dense::other, costs_.elementwise(elements * kElement), times);
  };
  const auto count_sent = [&dense](const Communication::Exchange& one) {
    dense.communicated += one.sent * one.times;
    dense.network += one.network * one.times;
    if (one.network > 0) dense.network_seconds += one.cost.seconds * one.times;
  };
  const auto exchange = [&](const std::vector<Communication::Exchange>& exchanges) {
    for (const Communication::Exchange& one : exchanges) {
      add(&Dense::collective, one.cost, one.times);
      count_sent(one);
      dense.in_place += one.in_place ? one.times : 0;
      using Tokens = Communication::Exchange::Tokens;
      if (one.tokens == Tokens::kDispatched) dense.parts.dispatch += one.cost.seconds * one.times;
      if (one.tokens == Tokens::kCombined) dense.parts.combine += one.cost.seconds * one.times;
    }
  };

  double beside = 0;  // a delta-net's small projection, beside the large one
  for (auto next = weights_.begin(); next != weights_.end();) {
    const WeightSpec& weight = *next++;
    const double weight_rows = communication.rows_of(weight.part, rows);
    if (weight.role != WeightRole::kLinear || weight_rows == 0) continue;
    std::uint64_t columns = weight.n;
    while (next != weights_.end() && next->joined && !weight.format.quantized() && !next->format.quantized())
      columns += next++->n;
    if (latent != Latent::kExpanded && weight.name == "kv_b_proj") {
      add(&Dense::gemm, mla_costs_->absorbed(m), weight.layers);
      add(&Dense::other, mla_costs_->widening(costs_), weight.layers);
      if (latent == Latent::kAbsorbedJoined)
        add(&Dense::other, mla_costs_->joining(costs_, m), weight.layers);
      continue;
    }
    const MatrixClass kernel = linear_kernel(weight.format, profile_);
    if (model_.is_compressed() && weight.part == ModelPart::kAttention) {
      add_product(kernel, costs_.compressed_product(weight_rows, weight.n, weight.k, weight.format),
                  weight.layers);
      continue;
    }
    KernelCost cost = costs_.gemm(weight_rows, columns, weight.k, weight.format);
    if (weight.part == ModelPart::kRouter && model_.facts.fp32_router != 0) {
      other(weight_rows * 3 * double(weight.k), weight.layers);  // what it is given, to fp32
      cost.seconds = std::max(cost.seconds, costs_.fp32_product(weight_rows, weight.n, weight.k));
    }
    if (const double served = kernel == MatrixClass::kGemmFp8 && power_fp8_ ? power_fp8_->served : 0;
        served > 0 && weight_rows > kServedRows) {
      const double few = costs_.gemm(kServedRows, weight.n, weight.k, weight.format).seconds;
      cost.seconds =
          std::min(cost.seconds, std::max(few, cost.flops / (profile_.dense_flops_fp8() * served)));
    }
    add_product(kernel, cost, weight.layers);
    const double seconds = cost.seconds * weight.layers;
    if (weight.name == "in_proj_ba") beside += seconds;
    if (weight.part == ModelPart::kSharedExperts)
      dense.parts.shared += seconds;
    else if (weight.part == ModelPart::kDenseMlp || weight.part == ModelPart::kHead)
      dense.parts.outside += seconds;
    else if (weight.part == ModelPart::kAttention && weight.name != "o_proj")
      dense.parts.prepare += seconds;
  }
  dense.parts.low_latency = communication.low_latency(rows);
  const double before_experts = dense.gemm;
  double routed_issued = 0;
  bool exchanges = true;  // of tokens with their experts' ranks, apart
  for (const WeightSpec& weight : weights_) {
    if (weight.role != WeightRole::kExperts || weight.name != "experts.gate_up_proj" || rows.routed == 0)
      continue;
    // Fused shared experts run among the routed ones, each token's on top of its choice.
    RoutedExperts experts{.tokens = double(rows.routed),
                          .hidden = weight.k,
                          .width = weight.n / (model_.ungated_mlp ? 1 : 2),
                          .experts = weight.experts + shard_.num_fused_shared_experts,
                          .top_k = model_.moe.top_k + shard_.num_fused_shared_experts,
                          .ep_size = shard_.ep_size};
    experts.only_own_rows = layout.a2a();
    experts.gated = !model_.ungated_mlp;
    const MatrixClass kernel = costs_.experts(model_.facts.trtllm_experts, experts, weight.format);
    // TensorRT-LLM's kernels choose by themselves.
    const bool compiled = shard_.num_fused_shared_experts > 0 ? model_.facts.compiled_router_beside_shared
                                                              : model_.facts.compiled_router;
    if (compiled && !chooses_trtllm(model_.facts.trtllm_experts, weight.format, profile_)) {
      dense.other +=
          (model_.facts.compiled_router ? kCompiledRouterSeconds : kBesideSharedSeconds) * weight.layers;
      routed_issued = kCompiledRouterIssued * weight.layers;
    }
    if (model_.facts.grouped_topk) dense.other += kGroupedTopKSeconds * weight.layers;
    if (model_.facts.torch_router) {
      dense.other += kTorchTopKSeconds * weight.layers;
      dense.launches += 2 * double(weight.layers);
      other(double(rows.routed) * model_.hidden_size / 2, kTorchRouterKernels * weight.layers);
    }
    if (model_.facts.appends_shared_experts && shard_.num_fused_shared_experts > 0)
      other(double(rows.routed), kAppendedKernels * weight.layers);
    if (experts_in_use_ > 0 && experts_in_use_ + shard_.num_fused_shared_experts < experts.experts) {
      experts.loaded_experts = experts.experts;
      experts.experts = experts_in_use_ + shard_.num_fused_shared_experts;
      experts.same_choice = true;
    }
    // Behind an all-to-all DeepGEMM multiplies fp8 in blocks, MegaMoE mxfp4.
    std::optional<GroupedExperts> grouped;
    if (mega_moe_ && weight.format.kind == WeightFormat::Kind::kMxfp4) {
      grouped = GroupedExperts::of(profile_, GroupedKernel::kMegaMoe);
      exchanges = !grouped;
    }
    if (layout.a2a() && experts.gated && linear_kernel(weight.format, profile_) == MatrixClass::kGemmFp8Block)
      grouped = GroupedExperts::of(
          profile_, communication.low_latency(rows) ? GroupedKernel::kLowLatency : GroupedKernel::kNormal);
    if (small_kernels_overlap_ && kernel == MatrixClass::kMoeTritonKernels) {
      dense.other -= kTritonRouting * weight.layers;
    } else if (small_kernels_overlap_) {
      const bool at_once = rows.routed * experts.top_k <= kAlignedAtOnce && experts.experts >= kAlignedAtOnce;
      dense.other -= (3 * kStartsEarly + (at_once ? kAlignsAtOnce : 0)) * weight.layers;
    }
    const double layers_of_load = double(weight.layers) / double(expert_load_.num_layers());
    for (std::size_t i = 0; i < expert_load_.num_layers(); ++i) {
      if (!experts.same_choice && expert_load_.uneven(layout.ep_size)) {
        const ExpertRows busiest = expert_load_.busiest(i, rows.routed, model_.moe, layout.ep_size);
        const double fused = shard_.num_fused_shared_experts;
        experts.rows = busiest.rows + double(rows.routed) * fused;
        experts.hit = busiest.hit + fused;
      }
      if (grouped) {
        const ExpertWork work = work_of(experts);
        const double ranks = layout.ep_size;
        const double came = double(rows.routed) * (1 - power(1 - 1 / ranks, model_.moe.top_k));
        add_product(kernel,
                    grouped->cost({experts.hidden, experts.width, work.rows, work.hit, came}, weight.format),
                    layers_of_load);
        continue;
      }
      add_product(kernel, costs_.moe(kernel, experts, weight.format), layers_of_load);
    }
  }
  dense.parts.routed = dense.gemm - before_experts;
  // All of it is hidden: profiles of Qwen3.5-35B-A3B and Kimi-Linear with 1, 16 and 64 requests (SGLang
  // 0.5.23, H200) show nothing behind the longer stream's last kernel.
  if (second_stream_ && rows.captured) {
    const double hidden_seconds = std::min(dense.parts.shared, dense.parts.routed) + beside;
    dense.gemm -= hidden_seconds;
    if (dense.products > 0) dense.products -= hidden_seconds;
  }
  if (const std::uint32_t dense_layers = model_.num_dense_layers(); dense_layers > 0) {
    const double dense_rows = communication.rows_of(ModelPart::kDenseMlp, rows);
    other(dense_rows * 3.0 * model_.intermediate_size / shard_.dense_mlp.size, dense_layers);  // silu and mul
    if (small_kernels_overlap_) dense.other -= kStartsEarly * dense_layers;
  }
  // Add and rmsnorm, twice a layer; with several ranks to a data-parallel rank the second one runs on the
  // gathered sum.
  const double norms = 2 * layers - model_.num_bare_layers;
  const bool torch_norms = model_.facts.torch_norms && !model_.facts.residual_norm_kernels;
  const bool norm_behind_gather = layout.dp_size > 1 && layout.attn_tp_size() > 1;
  if (norm_behind_gather) {
    other(m * 4 * hidden, layers);
    other(double(rows.gathered) * 4 * hidden, layers);
  } else if (layout.fuses_all_reduces && m <= kFusedRows) {
    // A norm in the sum before it: its bytes, and no launch.
    const KernelCost norm = costs_.elementwise(m * 4 * hidden * kElement);
    const double start = costs_.elementwise(0).seconds;
    add(&Dense::other, {norm.seconds - start, norm.flops, norm.bytes, 0}, norms);
  } else if (model_.is_compressed()) {
    // Sums become mixtures of streams, before and behind attention and experts.
    add(&Dense::other, costs_.hyper_connections(m, hidden, model_.compressed.streams), norms);
    other(m * 2 * hidden, norms);
  } else if (model_.residual_block > 0) {
    // What is read is a mixture of the sums of the blocks before it and of its own, and normed with it in one
    // kernel (kernels/ops/attention/attn_res.py of SGLang 0.5.23).
    double blocks = 0;
    for (std::uint32_t i = 0; i < model_.num_layers; ++i)
      blocks += std::ceil(double(i) / model_.residual_block) / layers;
    other(m * (4 + blocks) * hidden, norms);
  } else {
    // 3: the sum alone, its norms are kernels of their own. In parallel one norm, and two sums.
    other(m * (torch_norms || !model_.pre_norms || model_.parallel_block ? 3 : 4) * hidden, norms);
    if (model_.parallel_block) other(m * 2 * hidden, layers);
  }
  if (small_kernels_overlap_ && !torch_norms) dense.other -= kStartsEarly * norms;
  if (const double copied = communication.copied_elements(rows); copied > 0) other(copied, layers);
  const double attended = layers - linear_layers_.count;  // layers with keys and values
  const auto rotated =
      double(std::count_if(model_.layers.begin(), model_.layers.end(), [](const LayerConfig& layer) {
        return !layer.linear && layer.rope != LayerConfig::kNoRope;
      }));
  if (model_.post_norms && !torch_norms) other(m * 2 * hidden, 2 * layers);
  if (model_.facts.torch_norms) {
    const auto torch_norm = [&](double elements, double times) {
      KernelCost cost = costs_.elementwise(kTorchNormElements * elements * kElement);
      cost.seconds += kTorchNormSeconds;
      cost.launches = kTorchNormKernels;
      add(&Dense::other, cost, times);
    };
    if (torch_norms) torch_norm(m * hidden, 4 * layers);
    torch_norm(m * q, attended);
    torch_norm(m * kv, attended);
    if (model_.facts.compiles_rotation)
      other(m * (q + kv), 2 * rotated);
    else
      other(m * kTorchRotationElements / kTorchRotations * (q + kv), kTorchRotations * rotated);
  } else {
    // Dual chunk attention rotates every query in five ways (DualChunkRotaryEmbedding).
    other(m * (2 * (q + kv) + (model_.dual_chunk.enabled() ? 4 * q : 0)), rotated);  // rope
    if (model_.qk_norm) other(m * 2 * (q + kv), attended);                           // q and k norm
  }
  if (model_.residual_scale != 1) other(m * 2 * hidden, norms);
  if (model_.qk_l2_norm) other(m * 2 * (q + kv), rotated);
  if (model_.temperature_tuning.floor_scale > 0)
    other(m * 2 * q, model_.temperature_tuning.everywhere ? attended : attended - rotated);
  other(m * 4 * kv, attended);  // new keys and values into the pool
  if (model_.attn_output_gate || model_.head_gates)
    other(m * 3 * q, attended);  // outputs times sigmoid of the gates
  if (model_.moe.latent_norm) other(m * 2 * double(model_.moe.latent_size), model_.moe.num_layers);
  if (model_.moe.shared_gate) other(m * 4 * hidden, model_.moe.num_layers);  // gate of the shared expert
  exchange(communication.layers(rows, exchanges));
  if (shard_.stage.first()) {
    other(m * 2 * hidden, 1);  // embedding
    exchange(communication.embedding(rows));
  }
  if (shard_.stage.last()) other(m * 4 * hidden, 1);  // final norm
  if (rows.head > 0) exchange(communication.head(rows));
  if (rows.sampled > 0) add(&Dense::other, costs_.sampling(rows.sampled, model_.vocab_size), 1);
  for (const Communication::Exchange& one : communication.receive(rows))
    dense.receive += one.cost.seconds * one.times;
  for (const Communication::Exchange& one : communication.send(rows, hands_selection_over_)) {
    dense.send += one.cost.seconds * one.times;
    count_sent(one);
  }
  dense.issued = dense.launches;
  if (model_.is_mla()) dense.issued += kMlaIssued * layers;
  if (model_.is_compressed()) dense.issued += kCompressedIssued * layers;
  const bool shared_apart = model_.moe.num_shared_experts > shard_.num_fused_shared_experts;
  dense.issued += (kMoeIssued + (shared_apart ? kSharedIssued : 0)) * model_.moe.num_layers;
  for (const WeightSpec& weight : weights_)
    if (weight.role == WeightRole::kLinear &&
        linear_kernel(weight.format, profile_) == MatrixClass::kGemmFp8Block)
      dense.issued += kBlockProductIssued * weight.layers;
  // Other models' routers are one kernel.
  dense.issued += routed_issued;
  if (model_.facts.grouped_topk) dense.issued += kGroupedTopK * model_.moe.num_layers;
  if (layout.dp_size > 1 && !rows.max_len) {
    // Where tokens go to their experts nothing is gathered (ScatterMode.SCATTERED of layers/communicator.py).
    if (!layout.a2a()) dense.issued += kGathered * layers;
    dense.host = host_.data_parallel().layer_seconds() * layers * host_pace(clock_.launch_seconds());
  }
  return dense;
}

const ModeledForward::Dense& ModeledForward::dense(const PassRows& rows, Latent latent) {
  const DenseKey key{rows, latent};
  const auto found = dense_.find(key);
  if (found != dense_.end()) return found->second;
  return dense_.emplace(key, price_dense(rows, latent)).first->second;
}

std::size_t ModeledForward::HashKey::operator()(const DenseKey& key) const {
  const PassRows& rows = key.rows;
  std::uint64_t hash = std::uint64_t{rows.attention} << 32 | rows.sampled;
  hash = hash * 0x9e3779b97f4a7c15U + (std::uint64_t{rows.gathered} << 32 | rows.routed);
  return (hash * 0x9e3779b97f4a7c15U + rows.head) * 4 + static_cast<std::uint64_t>(key.latent);
}

KernelCost ModeledForward::expansion(const attention::MlaExtend& extend,
                                     const attention::ForwardMetadata& metadata, std::uint32_t rows) const {
  double fetched = 0;
  std::uint32_t longest = 0;
  for (const std::uint32_t prefix : metadata.extend_prefix_lens) {
    fetched += prefix;
    longest = std::max(longest, prefix);
  }
  if (metadata.forward_mode == proto::MIXED) {
    for (const std::uint32_t length : metadata.decode_seq_lens) {
      fetched += length - 1;
      longest = std::max(longest, length - 1);
    }
  }
  if (extend.method == attention::MlaForwardMethod::kMha) fetched = 0;
  const double chunks =
      extend.chunk_tokens == 0 ? 1 : (longest + extend.chunk_tokens - 1) / extend.chunk_tokens;
  return mla_costs_->expanded(costs_, rows, fetched, chunks, attention_layers_.front().shape.kv_bytes());
}

StepCost ModeledForward::forward(const attention::ForwardMetadata& batch) {
  StepCost step;
  const bool idle = batch.forward_mode == proto::IDLE;
  if (idle && batch.global_num_tokens.empty()) return step;
  attention::ForwardMetadata metadata = batch;
  metadata.image_mask = metadata.image_mask && model_.vision.both_ways;
  const bool captured = metadata.capture_bucket > 0;
  std::uint32_t tokens = 0;
  for (const std::uint32_t length : metadata.extend_lens) tokens += length;
  tokens += static_cast<std::uint32_t>(metadata.decode_seq_lens.size());
  const bool verify = attention::verifies_drafts(metadata.forward_mode);
  auto sampled = static_cast<std::uint32_t>(metadata.extend_lens.size() + metadata.decode_seq_lens.size());
  if (metadata.forward_mode == proto::TARGET_VERIFY) sampled = tokens;
  std::uint32_t bucket = metadata.capture_bucket;
  if (captured && !idle) {
    backend_->init_forward_metadata_replay_cuda_graph(metadata);
  } else if (!captured) {
    bucket = prefill_bucket(metadata, tokens);
    metadata.in_pieces = bucket > 0;
    if (!idle) backend_->init_forward_metadata(metadata);
  }
  const bool pieces = !captured && bucket > 0;
  const attention::MlaExtend mla = model_.is_mla() && !idle ? backend_->mla_extend() : attention::MlaExtend{};
  const bool expanded = mla.expanded();
  const Latent latent = !model_.is_mla() || expanded ? Latent::kExpanded
                        : mla.joins                  ? Latent::kAbsorbedJoined
                                                     : Latent::kAbsorbed;
  const std::uint32_t width = verify ? metadata.extend_lens.front() : metadata.tokens_per_request;
  if (captured) bucket *= width;
  PassRows rows = pass_rows(metadata, shard_, tokens, sampled, bucket);
  rows.captured = captured;
  if (captured && metadata.one_logit_per_request) {
    rows.sampled /= width;
    rows.head /= width;
  }
  if (!shard_.stage.last()) rows.sampled = rows.head = 0;
  const Dense& dense = this->dense(rows, latent);
  step.gemm = dense.gemm;
  step.collective = dense.collective;
  step.receive = dense.receive;
  step.send = dense.send;
  step.other = dense.other;
  step.flops = dense.flops;
  step.memory_bytes = dense.bytes;
  step.communicated_bytes = dense.communicated;
  step.network_bytes = dense.network;
  step.network_seconds = dense.network_seconds;

  const attention::KernelCost plan = idle ? attention::KernelCost{} : backend_->plan_cost();
  double attention_launches = 0;
  for (const AttentionLayers& kind : attention_layers_) {
    if (idle) break;  // attention without tokens launches nothing
    const double layers = kind.count;
    attention::KernelCost cost = metadata.forward_mode == proto::DECODE ? backend_->forward_decode(kind.shape)
                                 : expanded ? backend_->forward_extend(kind.expanded)
                                            : backend_->forward_extend(kind.shape);
    if (expanded) cost += expansion(mla, metadata, rows.attention);
    step.attention += cost.seconds * layers;
    step.flops += cost.flops * layers;
    step.memory_bytes += cost.bytes * layers;
    attention_launches += cost.launches * layers;
  }
  if (linear_layers_.count > 0) {
    const attention::KernelCost cost = linear_attention(metadata, bucket > 0 ? bucket : tokens);
    step.attention += cost.seconds;
    step.flops += cost.flops;
    step.memory_bytes += cost.bytes;
    attention_launches += cost.launches;
  }
  parts_ = dense.parts;
  parts_.throttling = throttling(dense);
  parts_.replay = captured ? clock_.replay_seconds() : 0;
  step.gemm += parts_.throttling;
  Uncaptured pass;
  if (captured) {
    step.launch = clock_.captured(dense.launches + plan.launches + attention_launches);
  } else {
    pass = uncaptured(step, dense, plan, attention_launches, pieces);
    // Not below 0: rounding may leave the difference of two equal sums there.
    step.launch = std::max(
        0.0, pass.seconds - (step.attention + plan.seconds + step.gemm + step.collective + step.other));
  }
  step.attention += plan.seconds;
  step.device_seconds =
      captured ? step.attention + step.gemm + step.collective + step.other + step.launch : pass.device;
  step.issue_seconds = pass.issue;
  step.launches = captured ? 1
                  : pieces
                      ? kPieceLaunches * model_.num_layers + kInPlaceLaunches * dense.in_place + kEndLaunches
                      : kEagerLaunch * (dense.issued + plan.launches + attention_launches);
  if (!idle) step.host_seconds = backend_->plan_host_seconds();
  if (fresh_kernels_ && !idle) {
    // While it compiles the host issues nothing else.
    const double seconds = fresh_kernels_->compile_seconds(metadata, !captured && !pieces);
    step.host_seconds += seconds;
    if (seconds > 0) step.issue_seconds = std::max(step.issue_seconds, clock_.replay_seconds());
  }
  return step;
}

// Boards hold their boost clock only as long as the power drawn allows. In a long pass matrix products run at
// the rate that they sustain, but for what the time before it, and its own collectives, leave to draw.
double ModeledForward::throttling(const Dense& dense) const {
  const OperatorCoefficients& power = power_ ? *power_ : power_fp8_.value_or(OperatorCoefficients{});
  return std::max(0.0,
                  dense.sustained - dense.products - power.overlap * dense.collective - power.fixed_seconds);
}

// The captured size that a pass with an extend part is padded to; 0: it runs eagerly. Data-parallel ranks
// replay together, padded to what the largest needs, or not at all: each that is not idle has a say, decodes
// as extends of one token, but not in front of an all-to-all (SGLang 0.5.23's dp_attn.py,
// _local_prefill_cuda_graph_vote; releases before it have no such graphs with data-parallel attention).
std::uint32_t ModeledForward::prefill_bucket(const attention::ForwardMetadata& metadata,
                                             std::uint32_t tokens) const {
  const auto global = metadata.global_num_tokens;
  if (attention::verifies_drafts(metadata.forward_mode)) return 0;
  if (global.empty()) return metadata.forward_mode != proto::DECODE ? prefill_graphs_.bucket(tokens) : 0;
  if (!metadata.is_extend_in_batch || metadata.is_verify_in_batch) return 0;
  if (metadata.is_decode_in_batch && shard_.layout.a2a()) return 0;
  std::uint32_t largest = 0;
  for (const std::uint32_t count : global) {
    const std::uint32_t bucket = prefill_graphs_.bucket(count);
    if (count > 0 && bucket == 0) return 0;
    largest = std::max(largest, bucket);
  }
  return largest;
}

attention::KernelCost ModeledForward::linear_attention(const attention::ForwardMetadata& metadata,
                                                       std::uint32_t rows) {
  attention::KernelCost cost;
  const bool verifies = metadata.forward_mode == proto::TARGET_VERIFY;
  const std::uint32_t drafts = verifies ? metadata.extend_lens.front() : 1;
  if (metadata.forward_mode == proto::DECODE) {
    cost = gated_delta_.decode(linear_layers_, rows);
  } else if (verifies) {
    cost = gated_delta_.verify(linear_layers_, double(rows) / drafts, drafts);
  } else {
    linear_lens_.assign(metadata.extend_lens.begin(), metadata.extend_lens.end());
    if (metadata.forward_mode == proto::MIXED)
      linear_lens_.resize(linear_lens_.size() + metadata.decode_seq_lens.size(), 1);
    cost = gated_delta_.extend(linear_layers_, linear_lens_);
  }
  const double layers = linear_layers_.count;
  cost = {cost.seconds * layers, cost.flops * layers, cost.bytes * layers,
          cost.launches * linear_layers_.count};
  const StateMoves moves{.copies = metadata.state_copies,
                         .clears = metadata.state_clears,
                         .snapshots = metadata.state_snapshots,
                         .may_snapshot = tracks_states_};
  cost += verifies
              ? gated_delta_.commit(linear_layers_, static_cast<double>(metadata.extend_lens.size()), moves)
              : gated_delta_.moves(linear_layers_, moves, metadata.forward_mode == proto::DECODE);
  return cost;
}

ModeledForward::Uncaptured ModeledForward::uncaptured(const StepCost& step, const Dense& dense,
                                                      const attention::KernelCost& plan,
                                                      double attention_launches, bool pieces) const {
  const attention::HostCost host = attention_launches > 0 ? backend_->host_cost() : attention::HostCost{};
  const double launch = host.launch_seconds > 0 ? host.launch_seconds : clock_.launch_seconds();
  IssuedTime attention =
      clock_.eager(step.attention, attention_launches, attention_launches * launch + host.once_seconds);
  const double other_host = pieces ? piecewise_layer_ * model_.num_layers  // one attention call included
                                   : (dense.issued + plan.launches) * clock_.launch_seconds() + dense.host;
  const IssuedTime other = clock_.eager(step.gemm + step.collective + step.other + plan.seconds,
                                        dense.launches + plan.launches, other_host);
  if (host.synchronous) {
    const double seconds = other.seconds() + attention.seconds();
    // After its last wait the host issues the last layer: of a burst's prefills, and of the decode pass
    // after them, real servers answer each when the launch of the next is over (torch_native, 1,024 and
    // 4,096 tokens).
    return {.seconds = seconds, .device = seconds, .issue = seconds * (1 - 1.0 / model_.num_layers)};
  }
  if (pieces) attention.issue = host.once_seconds;
  const IssuedTime all = other + attention;
  return {.seconds = all.seconds(), .device = all.device, .issue = all.issue};
}

void ModeledForward::save(StateWriter& state) const {
  backend_->save(state);
  if (fresh_kernels_) state(*fresh_kernels_);
}

void ModeledForward::load(StateReader& state) {
  backend_->load(state);
  if (fresh_kernels_) state(*fresh_kernels_);
}

}  // namespace tpsim::rank
