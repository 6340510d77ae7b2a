#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "attention/full/full_attention.h"
#include "attention/selection/registry.h"
#include "launch/deployment/resolve.h"
#include "proto/coefficients.h"
#include "rank/config/shard.h"
#include "rank/cost/delta_kernels.h"
#include "rank/cost/hardware.h"
#include "rank/cost/matrix_kernel.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/layers.h"
#include "rank/llm/mla_cost.h"

namespace tpsim::launch {
namespace {

proto::Calibration& add_row(proto::RunReport& report, std::string_view name) {
  proto::Calibration& row = *report.add_calibration();
  row.set_operator_class(std::string(name));
  row.set_status("uncalibrated");
  return row;
}

// A source without an error says where the figure was carried over from.
void take(double median_error, const std::string& source, proto::Calibration& row) {
  row.set_source(source);
  row.set_median_error(median_error);
  if (median_error > 0 && !source.empty()) row.set_status("calibrated");
}

// From an OperatorEfficiency or a ConstantFit.
template <typename Fit>
void take(const Fit& fit, proto::Calibration& row) {
  take(fit.median_error(), fit.source(), row);
  if constexpr (requires { fit.p90_error(); }) row.set_p90_error(fit.p90_error());
}

// What was fitted to steps of servers holds for what those were: their model, --tp and routing.
bool like_fitted_servers(const Deployment& run, const proto::OperatorEfficiency& entry) {
  const std::string_view load_format = run.weights.experts_in_use > 0 ? "dummy" : "auto";
  return entry.servers().empty() ||
         std::any_of(entry.servers().begin(), entry.servers().end(), [&](const proto::FittedServer& met) {
           return met.model() == run.model.name && met.tp_size() == run.parallel.layout.tp_size &&
                  met.load_format() == load_format;
         });
}

void add_operator(const Deployment& run, const std::string& name, proto::RunReport& report) {
  proto::Calibration& row = add_row(report, name);
  if (run.model.is_mla() && !run.model.is_sparse() && name.starts_with("attention."))
    row.set_source(
        "this MLA kernel was not measured on this GPU: efficiencies of the backend's other kernels, or "
        "defaults");
  const auto* const entry = find_efficiency(run.hardware, name);
  if (entry == nullptr) return;
  take(*entry, row);
  if (like_fitted_servers(run, *entry)) return;
  row.set_status("uncalibrated");
  row.clear_median_error();
  row.clear_p90_error();
}

void add_constant(const Deployment& run, const std::string& name, proto::RunReport& report) {
  proto::Calibration& row = add_row(report, name);
  if (const auto* const fit = rank::find_constant_fit(run.hardware, name)) take(*fit, row);
}

void add_launch_queue(const Deployment& run, bool queue_stated, proto::RunReport& report) {
  proto::Calibration& row = add_row(report, "launch_queue");
  if (queue_stated) {
    row.set_source("--launch-queue");
  } else if (run.hardware.name() == run.host.gpu()) {
    take(run.host.launch_queue(), row);
  } else {
    row.set_source(fmt::format("not measured here: launches that wait on {}", run.host.gpu_title()));
  }
}

// Of a deployment that serves images: their encoder, and what the host does with them.
void add_images(const Deployment& run, proto::RunReport& report) {
  const rank::VisionConfig& vision = run.model.vision;
  if (!vision.served) return;
  const attention::FullAttentionDescription& kernel = attention::find_full_attention(
      vision.attention_backend, generation_of(run.hardware), run.hardware.name());
  // Llama 4's encoder was measured nowhere.
  const bool measured = vision.rule != rank::ImageRule::kCanvas;
  const auto fit_of = [&](const std::string& name) {
    return measured ? rank::find_constant_fit(run.hardware, name) : nullptr;
  };
  const std::string name = fmt::format("vision.attention.{}", kernel.name);
  proto::Calibration& attention = add_row(report, name);
  if (const auto* const fit = fit_of(name)) {
    take(fit->median_error(),
         fmt::format("the efficiencies of {}, and {}", kernel.operator_class(), fit->source()), attention);
  } else {
    attention.set_source(fmt::format("not measured: the efficiencies of {}, causal prefill, without its mask",
                                     kernel.operator_class()));
  }
  proto::Calibration& encoder = add_row(report, "vision.encoder");
  if (const auto* const fit = fit_of("vision.encoder")) {
    take(*fit, encoder);
  } else {
    encoder.set_source(
        "not measured on this device: the text model's prices of its operators, issued one by one");
  }
  proto::Calibration& host = add_row(report, "vision.host");
  if (measured && run.hardware.name() == run.host.gpu()) {
    take(run.host.images().median_error(),
         fmt::format(
             "images on the host of {}'s machine: clocks in SGLang 0.5.12's tokenizer process and scheduler",
             run.host.gpu_title()),
         host);
  } else {
    host.set_source(fmt::format("not measured here: images on the host as on {}'s machine with SGLang 0.5.12",
                                run.host.gpu_title()));
  }
}

// The classes of this deployment's matrix products, each once.
std::vector<std::string_view> matrix_classes(const Deployment& run) {
  std::vector<std::string_view> names;
  for (const rank::WeightSpec& weight :
       rank::weight_list(run.model, rank::make_shard(run.model, run.parallel.layout, 0))) {
    if (weight.role != rank::WeightRole::kLinear && weight.role != rank::WeightRole::kExperts) continue;
    if (weight.name == "experts.down_proj") continue;  // in one call with the other projection
    const auto add = [&names](rank::MatrixClass id) {
      const std::string_view name = rank::matrix_class(id).name;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    if (weight.role == rank::WeightRole::kLinear) {
      add(rank::linear_kernel(weight.format, run.hardware));
      continue;
    }
    const bool trtllm = rank::chooses_trtllm(run.model.facts.trtllm_experts, weight.format, run.hardware);
    for (const double tokens : {1.0, weight.experts + 1.0}) {  // few, and more than there are experts
      add(rank::expert_kernel(weight.format, run.hardware, weight.experts,
                              static_cast<std::uint32_t>(weight.n / 2), tokens, trtllm,
                              run.parallel.layout.ep_size));
    }
  }
  return names;
}

// Any of the run's products is in fp8, or not.
bool multiplies_in(const Deployment& run, bool fp8) {
  const std::vector<std::string_view> names = matrix_classes(run);
  for (std::size_t i = 0; i < rank::kMatrixClasses; ++i) {
    const rank::MatrixClassRow& row = rank::matrix_class(rank::MatrixClass(i));
    if ((row.rate == rank::MatrixClassRow::Rate::kFp8) == fp8 &&
        std::find(names.begin(), names.end(), row.name) != names.end())
      return true;
  }
  return false;
}

// Layers with states; verification of drafts, too.
void add_linear_attention(const Deployment& run, proto::RunReport& report) {
  if (!run.model.is_hybrid_linear()) return;
  using rank::DeltaKernel;
  using rank::LinearAttnBackend;
  const rank::LinearKind kind = run.model.linear.kind;
  const bool kda = kind == rank::LinearKind::kKda;
  if (!kda && kind != rank::LinearKind::kGatedDelta) {
    for (const char* const name : {"gated_delta.extend", "gated_delta.decode"})
      add_row(report, name).set_source(rank::source_of_price(kind));
    return;
  }
  const auto measured = [&](DeltaKernel kernel) {
    add_operator(run, std::string(class_of(kernel)), report);
    proto::Calibration& row = *report.mutable_calibration()->rbegin();
    if (row.source().empty())
      row.set_source("not measured on this GPU: an H100's shares of the device's rates");
  };
  const auto unmeasured = [&](const char* name, LinearAttnBackend backend) {
    add_row(report, name)
        .set_source(fmt::format("not measured: bytes and arithmetic of {}'s kernels", to_string(backend)));
  };
  const rank::LinearAttnBackends& backends = run.states.kernels;
  measured(kda ? DeltaKernel::kKdaConvExtend : DeltaKernel::kGdnConvExtend);
  if (!kda && backends.prefill != LinearAttnBackend::kTriton) {
    unmeasured("gated_delta.extend", backends.prefill);
  } else {
    measured(kda ? DeltaKernel::kKdaExtend : DeltaKernel::kGdnExtend);
  }
  measured(kda ? DeltaKernel::kKdaConvDecode : DeltaKernel::kGdnConvDecode);
  if (!kda && backends.decode != LinearAttnBackend::kTriton) {
    unmeasured("gated_delta.decode", backends.decode);
  } else {
    measured(kda ? DeltaKernel::kKdaDecode : DeltaKernel::kGdnDecode);
  }
  if (!run.speculation.algorithm.empty()) measured(DeltaKernel::kVerify);
}

}  // namespace

void write_calibration(const Deployment& run, bool queue_stated, proto::RunReport& report) {
  const std::string prefill = "attention." + run.attention.backends.prefill;
  const std::string decode = "attention." + run.attention.backends.decode;
  std::vector<std::string> operators = {prefill + ".extend", decode + ".decode"};
  if (run.model.is_sparse()) {
    const auto nsa = [](std::string_view kernel, const char* phase) {
      return fmt::format("attention.nsa.{}.{}", kernel, phase);
    };
    const bool by_batch = run.sparse.options.kernels.prefill == attention::SparseKernel::kFlashMlaAuto;
    operators = {nsa(by_batch ? "flashmla_sparse" : to_string(run.sparse.options.kernels.prefill), "extend")};
    if (by_batch) operators.push_back(nsa("flashmla_kv", "extend"));
    operators.insert(operators.end(),
                     {nsa("dense", "extend"), nsa("indexer", "extend"),
                      nsa(to_string(run.sparse.options.kernels.decode), "decode"), nsa("indexer", "decode")});
  } else if (run.model.is_compressed()) {
    operators.clear();
    for (const char* const kernel : {"csa", "hca", "indexer"})
      for (const char* const phase : {"extend", "decode"})
        operators.push_back(fmt::format("attention.dsv4.{}.{}", kernel, phase));
    operators.insert(operators.end(), {"mhc.pre", "mhc.post"});
  } else if (run.model.is_mla()) {
    operators = {prefill + ".mla_prefill", prefill + ".mla_extend", decode + ".mla_decode",
                 std::string(rank::MlaCosts::product_class(
                     rank::weight_named(
                         rank::weight_list(run.model, rank::make_shard(run.model, run.parallel.layout, 0)),
                         "kv_b_proj")
                         .format))};
  }
  if (run.model.is_block_sparse())
    for (const char* const kernel : {"blocks", "indexer"})
      for (const char* const phase : {"extend", "decode"})
        operators.push_back(fmt::format("attention.msa.{}{}.{}", kernel,
                                        is_fp8(run.attention.kv_format) ? "_fp8" : "", phase));
  for (const std::string_view name : matrix_classes(run)) operators.emplace_back(name);
  const rank::ParallelLayout& layout = run.parallel.layout;
  if (layout.tp_size > 1)
    operators.insert(operators.end(), {"all_reduce.custom", "all_reduce.nccl", "all_gather"});
  if (layout.dp_size > 1 || layout.a2a() || layout.moe_dense_tp1) operators.emplace_back("reduce_scatter");
  if (run.scheduler.pipeline.staged())
    operators.emplace_back("all_to_all");  // whose sends those between stages are taken for
  operators.emplace_back("elementwise");
  for (const std::string_view name : {rank::kPowerClass, rank::kPowerFp8Class}) {
    if (find_efficiency(run.hardware, name) != nullptr && multiplies_in(run, name == rank::kPowerFp8Class))
      operators.emplace_back(name);
  }
  for (const std::string& name : operators) add_operator(run, name, report);
  for (const KernelChoice::Assumed& kernel : run.kernels.assumed)
    add_row(report, kernel.name).set_source(kernel.source);
  if (layout.fuses_all_reduces)
    add_row(report, "all_reduce.flashinfer_fused")
        .set_source("not measured: SGLang's own sum over ranks, and the bytes of the norm behind it");
  if (layout.nodes > 1)
    add_row(report, "all_reduce.network")
        .set_source(
            "no server over several nodes was measured: NCCL's public figures of two nodes of 8 H200s, "
            "DeepEP's of the H800, and " +
            run.hardware.network().source());
  if (layout.a2a()) {
    for (const char* const kernels : {"deepep.normal", "deepep.low_latency"})
      add_row(report, kernels).set_source("not measured: bandwidths that DeepEP states for the H800");
  }
  add_linear_attention(run, report);
  if (!run.speculation.algorithm.empty()) {
    add_row(report, "speculation.verify")
        .set_source("not measured: the backend's extend (or decode) kernels on a few tokens of each request");
    proto::Calibration& host = add_row(report, "speculation.draft_host");
    if (run.speculation.algorithm == "NGRAM") {
      take(run.host.ngram(), host);
    } else {
      host.set_source("not measured: the host is taken to hide behind the device");
    }
  }
  add_row(report, "sampling").set_source("not measured: two elementwise passes over the logits");
  const attention::BackendRow& prefill_row =
      attention::find_backend(run.attention.backends.prefill, "--prefill-attention-backend").row;
  const attention::BackendRow& decode_row =
      attention::find_backend(run.attention.backends.decode, "--decode-attention-backend").row;
  if (prefill_row.plan_price_assumed || decode_row.plan_price_assumed)
    add_row(report, "attention.metadata").set_source("not measured: 2 us for each kernel that plans a pass");

  // Batches beyond the captured sizes run without a graph in every deployment.
  std::vector<std::string> constants = {"kernel_launch_seconds"};
  if (!run.graphs.prefill.tokens.empty()) constants.emplace_back("piecewise_layer_seconds");
  if (!run.scheduler.cuda_graph_bs.empty()) constants.emplace_back("graph_replay_seconds");
  constants.insert(constants.end(), {"graph_kernel_gap_seconds", "scheduler_step_seconds"});
  const auto add_own = [&constants](const attention::BackendRow& row, std::string_view name) {
    if (!name.empty()) constants.push_back(fmt::format("attention.{}.{}", row.name, name));
  };
  add_own(prefill_row, prefill_row.host_constant);
  if (decode_row.name != prefill_row.name) add_own(decode_row, decode_row.host_constant);
  for (const std::string_view name : decode_row.decode_constants) add_own(decode_row, name);
  for (const std::string& name : constants) add_constant(run, name, report);
  if (run.speculation.assumed)
    add_row(report, "speculation.acceptance")
        .set_source(
            fmt::format("assumed {}: {}", run.speculation.assumed->of, run.speculation.assumed->source));
  if (run.scheduler.launch_queue > 0) add_launch_queue(run, queue_stated, report);
  if (run.attention.kv_format == NumberFormat::kFp4E2M1)
    add_row(report, "attention.kv_cache.fp4_e2m1")
        .set_source(
            "not measured: the bytes of an fp4 cache, at the rate at which the kernels read a wider one");
  add_constant(run, "context_bytes", report);
  if (proto::Calibration& row = *report.mutable_calibration()->rbegin(); row.source().empty())
    row.set_source(
        "not measured on this GPU: what CUDA and its libraries take of an H200, which the KV pool lacks");
  add_images(run, report);
}

}  // namespace tpsim::launch
