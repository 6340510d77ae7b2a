#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

constexpr std::string_view kFa = "fa", kSdpa = "torch_sdpa", kDynamic = "dynamic_cudnn_sdpa";

const DiffusionBackend& named(std::string_view name) {
  return find_diffusion_backend("--attention-backend", std::string(name));
}

// What a platform makes of a name: a backend and why it is another, or what stands against it.
struct Resolved {
  const DiffusionBackend* backend = nullptr;
  std::string reason = {};   // empty: the one asked for
  std::string refusal = {};  // a clause with the backend as subject; the selector may then try others
  bool final = false;        // SGLang fails to import: no other is tried
};

Resolved refused(std::string clause, bool final) { return {.refusal = std::move(clause), .final = final}; }

class Platform {
 public:
  explicit Platform(const DiffusionAttentionRequest& request)
      : request_(request), generation_(request.generation), half_(request.dtype != "fp32") {}

  // Null: the automatic choice.
  Resolved resolve(const DiffusionBackend* asked) const {
    if (kCudaGenerations.contains(generation_)) return cuda(asked);
    switch (generation_) {
      case GpuGeneration::kRocm:
        return rocm(asked);
      case GpuGeneration::kXpu:
        return xpu(asked);
      case GpuGeneration::kNpu:
        return npu(asked);
      default:
        return cpu(asked);
    }
  }

 private:
  bool installed(const DiffusionBackend& backend) const {
    return backend.package.empty() || request_.installed.empty() ||
           request_.installed.contains(backend.package);
  }
  std::string missing(const DiffusionBackend& backend) const {
    return fmt::format("needs {}, which --installed leaves out", backend.module);
  }
  std::string too_wide(const DiffusionBackend& backend) const {
    return fmt::format("takes heads of {} and the layer's are {}", backend.head_sizes.names(),
                       request_.head_dim);
  }

  // FlashAttention, where `reason` says why it is asked, or PyTorch's.
  Resolved flash(std::string reason) const {
    const DiffusionBackend& fa = named(kFa);
    const auto sdpa = [&](std::string_view why) {
      return Resolved{&named(kSdpa), fmt::format("{}{}fa {}", reason, reason.empty() ? "" : ", and ", why)};
    };
    if (generation_ == GpuGeneration::kTuring) return sdpa("needs compute capability 8.0");
    if (!half_ && fa.half_only) return sdpa("takes fp16 and bf16 only");
    if (!installed(fa)) return sdpa(missing(fa));
    // FlashAttention 4 on SM 10 takes every multiple of 8 up to 128.
    const bool fa4 =
        generation_ == GpuGeneration::kBlackwell && request_.head_dim <= 128 && request_.head_dim % 8 == 0;
    if (!fa.head_sizes.contains(request_.head_dim) && !fa4) return sdpa(too_wide(fa));
    return {&fa, std::move(reason)};
  }

  Resolved cuda(const DiffusionBackend* asked) const {
    if (asked == nullptr) {
      if (generation_ == GpuGeneration::kBlackwellSm120)
        return {&named(kSdpa), "automatic on SM 12, for which FlashAttention is not built"};
      Resolved chosen = flash("");
      if (chosen.backend->name != kFa) return {chosen.backend, "automatic: " + chosen.reason};
      if (generation_ == GpuGeneration::kBlackwell)
        return {&named(kDynamic), "automatic on SM 10: cuDNN's kernel, fa's where it cannot serve a call"};
      return {chosen.backend, "automatic on CUDA"};
    }
    if (asked->name == kFa) {
      if (generation_ == GpuGeneration::kBlackwellSm120) return {&named(kSdpa), "fa is not built for SM 12"};
      return flash("");
    }
    if (!asked->platforms.contains(DiffusionPlatform::kCuda))
      return refused("does not run on CUDA", asked->name == "aiter");  // which fails to import
    if (!installed(*asked) || !asked->generations.contains(generation_)) {
      const std::string why =
          installed(*asked) ? fmt::format("has no kernels for {}", to_string(generation_)) : missing(*asked);
      if (asked->name == "sage_attn") return flash(fmt::format("sage_attn {}", why));
      if (asked->name == "sage_attn_3") return {&named(kSdpa), fmt::format("sage_attn_3 {}", why)};
      // Found missing when a layer is built, which for cross attention is another's.
      return refused(why, asked->name != "sage_sla_attn" || !request_.cross);
    }
    if (asked->name == "sage_attn" && !asked->head_sizes.contains(request_.head_dim))
      return refused(too_wide(*asked), false);
    return {asked, ""};
  }

  Resolved rocm(const DiffusionBackend* asked) const {
    if (asked != nullptr && asked->name == "aiter") {
      if (!installed(*asked)) return refused(missing(*asked), true);
      return {asked, ""};
    }
    if (asked != nullptr && asked->name == "aiter_sage" && (half_ || !asked->half_only)) {
      if (!installed(*asked)) return refused(missing(*asked), true);
      return {asked, ""};
    }
    if (asked != nullptr && asked->name == kSdpa) return {asked, ""};
    if (asked != nullptr && asked->name == "aiter_sage")
      return {&named(kSdpa), "aiter_sage takes fp16 and bf16 only"};
    if (asked != nullptr && asked->name != kFa) return refused("does not run on ROCm", false);
    return {&named(kSdpa), "fa goes through FlashAttention 3, which is for CUDA only"};
  }

  Resolved xpu(const DiffusionBackend* asked) const {
    static constexpr std::uint32_t kSizes[] = {64, 96, 128, 192, 256};
    const HeadSizes sizes = {.listed = kSizes};
    if (asked == nullptr || asked->name == kFa) {
      if (!half_) return {&named(kSdpa), "XPU's flash attention takes fp16 and bf16 only"};
      if (!sizes.contains(request_.head_dim))
        return {&named(kSdpa), fmt::format("XPU's flash attention takes heads of {}, not {}", sizes.names(),
                                           request_.head_dim)};
      return {&named(kFa), asked == nullptr ? "automatic on XPU: its own flash attention" : ""};
    }
    if (asked->name == kSdpa) return {asked, ""};
    return {&named(kSdpa), fmt::format("{} does not run on XPU", asked->name)};
  }

  Resolved npu(const DiffusionBackend* asked) const {
    if (asked != nullptr && (asked->name == kFa || asked->name == kSdpa)) return {asked, ""};
    return {&named(kSdpa),
            asked == nullptr ? "automatic on NPU" : fmt::format("{} does not run on NPU", asked->name)};
  }

  Resolved cpu(const DiffusionBackend* asked) const {
    if (asked != nullptr && asked->name == kSdpa) return {asked, ""};
    return {&named(kSdpa),
            asked == nullptr ? "automatic on CPU" : fmt::format("{} does not run on a CPU", asked->name)};
  }

  const DiffusionAttentionRequest& request_;
  GpuGeneration generation_;
  bool half_;
};

// A name that SGLang itself puts in where none is given.
std::string implied(const DiffusionAttentionRequest& request, std::string& why) {
  if (request.ring) {
    why = "ring attention needs a backend that gives the softmax's log-sum-exp";
    return "fa";
  }
  if (request.generation == GpuGeneration::kRocm) {
    why = "automatic on ROCm";
    return "aiter";
  }
  return {};
}

}  // namespace

DiffusionAttentionChoice choose_diffusion_attention(const DiffusionAttentionRequest& request) {
  const Platform platform(request);
  std::string why;
  const bool explicitly = !request.requested.empty();
  const std::string name = explicitly ? request.requested : implied(request, why);
  const DiffusionBackend* const asked = name.empty() ? nullptr : &find_diffusion_backend(request.flag, name);
  // server_args.py looks at --attention-backend, and the layer at what it got.
  if (request.ring && explicitly && !request.explicit_component && !asked->ring)
    throw_user_error(
        "{} {}: ring attention needs fa or sage_attn, whose kernels give the softmax's log-sum-exp",
        request.flag, asked->name);

  std::string first_refusal;
  const auto serve = [&](const DiffusionBackend* candidate) -> std::optional<DiffusionAttentionChoice> {
    const Resolved resolved = platform.resolve(candidate);
    if (resolved.backend == nullptr) {
      if (resolved.final)
        throw_user_error("{} {}: it {} (here: {})", request.flag, candidate->name, resolved.refusal,
                         to_string(request.generation));
      if (first_refusal.empty()) first_refusal = resolved.refusal;
      return std::nullopt;
    }
    return DiffusionAttentionChoice{resolved.backend, resolved.reason, false};
  };

  std::optional<DiffusionAttentionChoice> choice = serve(asked);
  std::string replaced;
  if (choice && choice->backend->sparse && (request.cross || !request.video)) {
    replaced = request.cross
                   ? fmt::format("{} is sparse and serves no cross attention", choice->backend->name)
                   : fmt::format("{} selects in a video's grid, and there is none", choice->backend->name);
    choice.reset();
  } else if (!choice) {
    // A component's own backend and the transformer's are taken as they are named, or not at all.
    const bool dense_cross = request.cross && asked->sparse;
    if (explicitly && !dense_cross && (request.explicit_component || !request.auxiliary))
      throw_user_error("{} {}: it {} (here: {})", request.flag, asked->name, first_refusal,
                       to_string(request.generation));
    replaced = fmt::format("{} {}", asked->name, first_refusal);
  }
  if (!choice) {
    choice = serve(nullptr);
    choice->reason = std::move(replaced);
  }
  if (!explicitly && !why.empty())
    choice->reason = choice->reason.empty() ? why : fmt::format("{}; {}", why, choice->reason);
  choice->replaced = explicitly && choice->backend != asked;
  if (request.ring && !choice->backend->ring)
    throw_user_error(
        "--ring-degree: ring attention needs a kernel that gives the softmax's log-sum-exp, and "
        "the layer gets {} ({}); use --ulysses-degree",
        choice->backend->name, choice->reason);
  return *std::move(choice);
}

}  // namespace tpsim::attention
