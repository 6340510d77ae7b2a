#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

namespace tpsim::attention {
namespace {

const DiffusionBackend& default_for(DiffusionDefault use) {
  for (const DiffusionBackend* const backend : diffusion_backends()) {
    if (backend->default_for == use) return *backend;
  }
  throw std::logic_error("no diffusion backend for a default");
}
const DiffusionBackend& flash_backend() { return default_for(DiffusionDefault::kFlash); }
const DiffusionBackend& torch_backend() { return default_for(DiffusionDefault::kTorch); }
bool is_flash(const DiffusionBackend* backend) {
  return backend != nullptr && backend->default_for == DiffusionDefault::kFlash;
}
bool is_torch(const DiffusionBackend* backend) {
  return backend != nullptr && backend->default_for == DiffusionDefault::kTorch;
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
    const DiffusionBackend& fa = flash_backend();
    const auto sdpa = [&](std::string_view why) {
      return Resolved{&torch_backend(),
                      fmt::format("{}{}fa {}", reason, reason.empty() ? "" : ", and ", why)};
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
        return {&torch_backend(), "automatic on SM 12, for which FlashAttention is not built"};
      Resolved chosen = flash("");
      if (!is_flash(chosen.backend)) return {chosen.backend, "automatic: " + chosen.reason};
      if (generation_ == GpuGeneration::kBlackwell)
        return {&default_for(DiffusionDefault::kSm10),
                "automatic on SM 10: cuDNN's kernel, fa's where it cannot serve a call"};
      return {chosen.backend, "automatic on CUDA"};
    }
    if (is_flash(asked)) {
      if (generation_ == GpuGeneration::kBlackwellSm120)
        return {&torch_backend(), "fa is not built for SM 12"};
      return flash("");
    }
    if (!asked->platforms.contains(DiffusionPlatform::kCuda))
      return refused("does not run on CUDA", asked->fails_elsewhere);
    if (!installed(*asked) || !asked->generations.contains(generation_)) {
      const std::string why =
          installed(*asked) ? fmt::format("has no kernels for {}", to_string(generation_)) : missing(*asked);
      switch (asked->if_missing) {
        case IfMissing::kFlash:
          return flash(fmt::format("{} {}", asked->name, why));
        case IfMissing::kTorch:
          return {&torch_backend(), fmt::format("{} {}", asked->name, why)};
        case IfMissing::kRefusedLate:
          return refused(why, !request_.cross);
        case IfMissing::kRefused:
          return refused(why, true);
      }
    }
    if (asked->refuses_heads && !asked->head_sizes.contains(request_.head_dim))
      return refused(too_wide(*asked), false);
    return {asked, ""};
  }

  Resolved rocm(const DiffusionBackend* asked) const {
    if (is_torch(asked)) return {asked, ""};
    if (asked != nullptr && !is_flash(asked)) {
      if (!asked->platforms.contains(DiffusionPlatform::kRocm)) return refused("does not run on ROCm", false);
      if (!half_ && asked->half_only)
        return {&torch_backend(), fmt::format("{} takes fp16 and bf16 only", asked->name)};
      if (!installed(*asked)) return refused(missing(*asked), true);
      return {asked, ""};
    }
    return {&torch_backend(), "fa goes through FlashAttention 3, which is for CUDA only"};
  }

  Resolved xpu(const DiffusionBackend* asked) const {
    static constexpr std::uint32_t kSizes[] = {64, 96, 128, 192, 256};
    const HeadSizes sizes = {.listed = kSizes};
    if (asked == nullptr || is_flash(asked)) {
      if (!half_) return {&torch_backend(), "XPU's flash attention takes fp16 and bf16 only"};
      if (!sizes.contains(request_.head_dim))
        return {&torch_backend(), fmt::format("XPU's flash attention takes heads of {}, not {}",
                                              sizes.names(), request_.head_dim)};
      return {&flash_backend(), asked == nullptr ? "automatic on XPU: its own flash attention" : ""};
    }
    if (is_torch(asked)) return {asked, ""};
    return {&torch_backend(), fmt::format("{} does not run on XPU", asked->name)};
  }

  Resolved npu(const DiffusionBackend* asked) const {
    if (is_flash(asked) || is_torch(asked)) return {asked, ""};
    return {&torch_backend(),
            asked == nullptr ? "automatic on NPU" : fmt::format("{} does not run on NPU", asked->name)};
  }

  Resolved cpu(const DiffusionBackend* asked) const {
    if (is_torch(asked)) return {asked, ""};
    return {&torch_backend(),
            asked == nullptr ? "automatic on CPU" : fmt::format("{} does not run on a CPU", asked->name)};
  }

  const DiffusionAttentionRequest& request_;
  GpuGeneration generation_;
  bool half_;
};

// The backend that SGLang itself puts in where none is named; null: the platform decides.
const DiffusionBackend* implied(const DiffusionAttentionRequest& request, std::string& why) {
  if (request.ring) {
    why = "ring attention needs a backend that gives the softmax's log-sum-exp";
    return &flash_backend();
  }
  if (request.generation == GpuGeneration::kRocm) {
    why = "automatic on ROCm";
    return &default_for(DiffusionDefault::kRocm);
  }
  return nullptr;
}

}  // namespace

DiffusionAttentionChoice choose_diffusion_attention(const DiffusionAttentionRequest& request) {
  const Platform platform(request);
  std::string why;
  const bool explicitly = !request.requested.empty();
  const DiffusionBackend* const asked =
      explicitly ? &find_diffusion_backend(request.flag, request.requested) : implied(request, why);
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
