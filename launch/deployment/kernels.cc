#include "launch/deployment/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "launch/deployment/attention.h"
#include "proto/base/error.h"
#include "rank/cost/matrix_kernel.h"
#include "rank/cost/op_cost.h"
#include "rank/llm/layers.h"
#include "scheduler/releases/sglang_release.h"

namespace tpsim::launch {
namespace {

using attention::GpuGeneration;
using Kind = rank::WeightFormat::Kind;

bool is_blackwell(GpuGeneration generation) { return generation == GpuGeneration::kBlackwell; }

// Experts' formats that a runner takes (arg_groups/moe_hook.py and arg_groups/overrides.py of SGLang 0.5.23),
// and where its own kernels are behind the price of that format.
struct Runner {
  std::string_view name;
  std::array<std::optional<Kind>, 4> formats;
  bool (*measured)(Kind, GpuGeneration);
};
constexpr std::array<Runner, 11> kRunners = {{
    {"triton",
     {Kind::k16Bit, Kind::kFp8, Kind::kInt8, Kind::kInt4},
     [](Kind kind, GpuGeneration gpu) {
       return kind == Kind::k16Bit || (kind == Kind::kFp8 && !is_blackwell(gpu));
     }},
    {"triton_kernel",
     {Kind::k16Bit, Kind::kMxfp4},
     [](Kind kind, GpuGeneration gpu) { return kind == Kind::kMxfp4 && !is_blackwell(gpu); }},
    {"flashinfer_trtllm",
     {Kind::k16Bit, Kind::kFp8, Kind::kNvfp4, Kind::kMxfp4},
     [](Kind, GpuGeneration gpu) { return is_blackwell(gpu); }},
    {"flashinfer_trtllm_routed",
     {Kind::k16Bit, Kind::kFp8, Kind::kNvfp4},
     [](Kind, GpuGeneration) { return false; }},
    {"flashinfer_cutlass",
     {Kind::k16Bit, Kind::kFp8, Kind::kNvfp4, Kind::kInt4},  // W4A16 NVFP4 is kept as int4
     [](Kind, GpuGeneration) { return false; }},
    {"flashinfer_mxfp4", {Kind::kMxfp4}, [](Kind, GpuGeneration gpu) { return is_blackwell(gpu); }},
    {"flashinfer_cutedsl", {Kind::kNvfp4}, [](Kind, GpuGeneration) { return false; }},
    {"cutlass", {Kind::kFp8, Kind::kNvfp4, Kind::kInt4}, [](Kind, GpuGeneration) { return false; }},
    {"marlin",
     {Kind::kInt4, Kind::kMxfp4, Kind::kFp8, Kind::kNvfp4},
     [](Kind kind, GpuGeneration) { return kind == Kind::kInt4; }},
    {"deep_gemm", {Kind::kFp8, Kind::k16Bit, Kind::kMxfp4}, [](Kind, GpuGeneration) { return false; }},
    {"aiter", {Kind::k16Bit, Kind::kFp8, Kind::kMxfp4}, [](Kind, GpuGeneration) { return false; }},
}};

std::optional<rank::WeightFormat> format_of_experts(const rank::ModelConfig& model,
                                                    const rank::ParallelLayout& layout) {
  for (const rank::WeightSpec& weight : rank::weight_list(model, rank::make_shard(model, layout, 0)))
    if (weight.role == rank::WeightRole::kExperts) return weight.format;
  return std::nullopt;
}

bool multiplies(const rank::ModelConfig& model, const rank::ParallelLayout& layout, Kind kind) {
  const std::vector<rank::WeightSpec> weights = rank::weight_list(model, rank::make_shard(model, layout, 0));
  return std::any_of(weights.begin(), weights.end(), [kind](const rank::WeightSpec& weight) {
    return weight.role == rank::WeightRole::kLinear && weight.format.kind == kind;
  });
}

// What --moe-runner-backend makes of the experts.
void choose_runner(const KernelArgs& args, const proto::HardwareProfile& hardware,
                   const rank::ModelConfig& model, const rank::ParallelLayout& layout, KernelChoice& out) {
  const std::string& name = args.moe_runner_backend;
  if (name == "auto") return;
  const std::optional<rank::WeightFormat> format = format_of_experts(model, layout);
  if (!format) return;  // SGLang, too, says nothing to a model without experts
  const GpuGeneration generation = generation_of(hardware);
  const auto* const runner =
      std::find_if(kRunners.begin(), kRunners.end(), [&](const Runner& row) { return row.name == name; });
  if (std::find(runner->formats.begin(), runner->formats.end(), format->kind) == runner->formats.end())
    throw_user_error("--moe-runner-backend {}: does not run experts of {} in {}'s format; use auto", name,
                     model.name, model.quantization.quantized() ? model.quantization.method : "16-bit");
  const bool trtllm = name.starts_with("flashinfer_trtllm") || name == "flashinfer_cutlass";
  if (name.starts_with("flashinfer_trtllm") && !is_blackwell(generation))
    throw_user_error(
        "--moe-runner-backend {}: these kernels are of Blackwell GPUs, and --hardware is {}; use auto", name,
        hardware.name());
  if ((name == "aiter") != (generation == GpuGeneration::kRocm) && name != "triton")
    throw_user_error("--moe-runner-backend {}: is not for --hardware {}; use auto", name, hardware.name());
  out.trtllm_experts = trtllm ? rank::TrtllmExperts::k16BitFp8OrNvfp4 : rank::TrtllmExperts::kNone;
  if (!runner->measured(format->kind, generation))
    out.assumed.push_back(
        {"moe_runner." + name, "not measured: as fast as the kernel whose prices of this format are known"});
}

// Kernels of linear layers that are none of those measured.
void assume_products(const KernelArgs& args, const rank::ModelConfig& model,
                     const rank::ParallelLayout& layout, KernelChoice& out) {
  const auto assume = [&](std::string_view flag, const std::string& name, Kind kind,
                          std::initializer_list<std::string_view> measured) {
    if (name == "auto" || !multiplies(model, layout, kind)) return;
    if (std::find(measured.begin(), measured.end(), name) == measured.end())
      out.assumed.push_back({fmt::format("{}.{}", flag, name),
                             "not measured: as fast as SGLang's default kernel of this format"});
  };
  assume("fp8_gemm_backend", args.fp8_gemm_backend, Kind::kFp8, {"deep_gemm", "flashinfer_trtllm"});
  assume("fp4_gemm_backend", args.fp4_gemm_backend, Kind::kNvfp4, {});
}

// SGLang's own rule, or what was asked for where it has an effect.
bool fuses_all_reduces(const ServerArgs& args, const proto::HardwareProfile& hardware,
                       const rank::ModelConfig& model, const rank::ParallelLayout& layout, Notes& notes) {
  const bool asked =
      args.enable_flashinfer_allreduce_fusion || !args.flashinfer_allreduce_fusion_backend.empty();
  const GpuGeneration generation = generation_of(hardware);
  // Between nodes it needs NVLink that joins them all (layers/flashinfer_comm_fusion.py: mnnvl).
  const bool can = layout.tp_size > 1 && layout.nodes == 1 && layout.dp_size == 1 && !layout.a2a() &&
                   (generation == GpuGeneration::kHopper || is_blackwell(generation));
  if (args.enforce_disable_flashinfer_allreduce_fusion) return false;
  if (asked && !can && layout.tp_size > 1)
    say(notes,
        "--enable-flashinfer-allreduce-fusion: changes nothing here; it is for Hopper and Blackwell, without "
        "data-parallel attention and --moe-a2a-backend");
  const scheduler::ReleaseRules& rules = args.sglang_release.rules;
  const bool chosen = model.facts.fuses_all_reduces > 0 &&
                      model.facts.fuses_all_reduces <= rules.fuses_all_reduces &&
                      (is_blackwell(generation) || rules.fuses_all_reduces_on_hopper);
  return can && (asked || chosen);
}

}  // namespace

proto::HardwareProfile with_named_kernels(const KernelArgs& args, proto::HardwareProfile hardware) {
  if (args.fp8_gemm_backend == "flashinfer_trtllm" && !rank::use_trtllm_blocks(hardware))
    throw_user_error(
        "--fp8-gemm-backend flashinfer_trtllm: these kernels are of NVIDIA's b200, b300 and gb200, and "
        "--hardware is {}; leave it out",
        hardware.name());
  if (args.moe_runner_backend != "auto" && args.moe_runner_backend != "triton_kernel") {
    auto& entries = *hardware.mutable_efficiencies();
    const std::string_view name = rank::matrix_class(rank::MatrixClass::kMoeTritonKernels).name;
    entries.erase(std::remove_if(entries.begin(), entries.end(),
                                 [name](const auto& entry) { return entry.operator_class() == name; }),
                  entries.end());
  }
  return hardware;
}

KernelChoice resolve_kernels(const ServerArgs& args, const proto::HardwareProfile& hardware,
                             const rank::ModelConfig& model, const rank::ParallelLayout& layout) {
  KernelChoice out;
  out.trtllm_experts = model.facts.trtllm_experts;
  if (args.numeric()) return out;
  choose_runner(args, hardware, model, layout, out);
  assume_products(args, model, layout, out);
  if (args.disable_flashinfer_autotune)
    out.assumed.push_back({"flashinfer_autotune", "not measured: untuned kernels are priced as tuned ones"});
  out.fuses_all_reduces = fuses_all_reduces(args, hardware, model, layout, out.notes);
  return out;
}

void write_kernels(const KernelArgs& args, const KernelChoice& kernels, Rows& rows) {
  if (args.moe_runner_backend != "auto") rows["moe_runner_backend"] = args.moe_runner_backend;
  if (args.fp8_gemm_backend != "auto") rows["fp8_gemm_backend"] = args.fp8_gemm_backend;
  if (args.fp4_gemm_backend != "auto") rows["fp4_gemm_backend"] = args.fp4_gemm_backend;
  if (args.disable_flashinfer_autotune) rows["disable_flashinfer_autotune"] = "true";
  if (kernels.fuses_all_reduces)
    rows["flashinfer_allreduce_fusion_backend"] =
        args.flashinfer_allreduce_fusion_backend.empty() ? "auto" : args.flashinfer_allreduce_fusion_backend;
}

}  // namespace tpsim::launch
