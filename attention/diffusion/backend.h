// What an attention backend of SGLang's diffusion pipelines says of itself. Each is one
// attention/diffusion/backends/NAME.cc; names, choices, checks and tables follow from these rows.
//
// Source: sglang.multimodal_gen 0.5.23, runtime/platforms/interface.py (AttentionBackendEnum),
// runtime/layers/attention/backends; the platform matrix of ../shared/reference/004….
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attention/backend.h"
#include "attention/diffusion/call.h"
#include "attention/gpu_generation.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// Columns of the platform matrix.
enum class DiffusionPlatform : std::uint8_t { kCuda, kRocm, kXpu, kMusa, kMps, kNpu };
inline constexpr DiffusionPlatform kDiffusionPlatforms[] = {
    DiffusionPlatform::kCuda, DiffusionPlatform::kRocm, DiffusionPlatform::kXpu,
    DiffusionPlatform::kMusa, DiffusionPlatform::kMps,  DiffusionPlatform::kNpu};
// "CUDA", "ROCm" …, as the matrix heads its columns.
std::string_view to_string(DiffusionPlatform platform);
class DiffusionPlatforms {
 public:
  constexpr DiffusionPlatforms(std::initializer_list<DiffusionPlatform> members) {
    for (const DiffusionPlatform member : members) bits_ |= 1U << static_cast<std::uint32_t>(member);
  }
  constexpr bool contains(DiffusionPlatform platform) const {
    return (bits_ >> static_cast<std::uint32_t>(platform) & 1U) != 0;
  }
  std::string names() const;  // "CUDA, MUSA"

 private:
  std::uint32_t bits_ = 0;
};

// Widths of heads that a kernel takes.
struct HeadSizes {
  std::span<const std::uint32_t> listed{};  // empty: every width of the range
  std::uint32_t min = 1, max = 1024;
  bool contains(std::uint32_t head_dim) const;
  std::string names() const;  // "64 and 128", "1 to 128"
};

enum class ParameterType : std::uint8_t { kText, kInteger, kReal, kFlag, kSizes };
// A key of --attention-backend-config.
struct DiffusionParameter {
  std::string_view name{};
  std::string_view alias{};  // what the source reads where the documentation says `name`
  ParameterType type = ParameterType::kReal;
  std::string_view default_value{};  // empty: none
  bool required = false;
  double min = 0, max = 1e9;                    // numbers, each of kSizes too
  std::span<const std::string_view> choices{};  // kText: what it may be; empty: anything
  std::uint32_t sizes = 0;                      // kSizes: how many
  std::string_view meaning{};
};
// Checked, defaults filled in, by `name`; kSizes as "4,6,8".
using DiffusionParameters = std::map<std::string, std::string, std::less<>>;
double real_parameter(const DiffusionParameters& parameters, std::string_view name);
std::uint32_t count_parameter(const DiffusionParameters& parameters, std::string_view name);
const std::string& text_parameter(const DiffusionParameters& parameters, std::string_view name);

// The price of a backend's layers on one GPU.
class DiffusionPrice {
 public:
  DiffusionPrice() = default;
  DiffusionPrice(const DiffusionPrice&) = delete;
  DiffusionPrice& operator=(const DiffusionPrice&) = delete;
  virtual ~DiffusionPrice() = default;
  // REQUIRES: tokens and heads are positive. Throws UserError for a call that the kernel cannot serve.
  virtual KernelCost layer(const DiffusionCall& call) const = 0;
  // Of the pairs of queries and keys, those that the plan computes; 1: dense.
  virtual double share(const DiffusionCall&) const { return 1; }
  // Whether something measured on this GPU stands behind it.
  virtual bool measured() const = 0;
};

// What SGLang takes where a backend's package is missing, or has no kernels for the device.
enum class IfMissing : std::uint8_t {
  kRefused,
  kRefusedLate,  // when a layer is built: for cross attention it has taken another by then
  kFlash,
  kTorch,
};
// What SGLang falls back to, or takes unasked.
enum class DiffusionDefault : std::uint8_t {
  kNone,
  kFlash,  // CUDA, XPU; ring attention
  kTorch,  // where no other can
  kSm10,   // where kFlash could serve on SM 10
  kRocm,
};

struct DiffusionBackend {
  std::string_view name{};       // as --attention-backend spells it
  std::string_view enum_name{};  // of AttentionBackendEnum
  std::span<const std::string_view> aliases{};
  std::string_view package{};  // what must be installed, as --installed spells it; empty: PyTorch
  std::string_view module{};   // what SGLang imports of it, for sentences
  DiffusionPlatforms platforms{};
  GpuGenerations generations = kAllGenerations;  // where its kernels run
  bool half_only = true;                         // fp16 and bf16, not fp32
  HeadSizes head_sizes{};
  bool sparse = false;  // never serves cross attention
  IfMissing if_missing = IfMissing::kRefused;
  DiffusionDefault default_for = DiffusionDefault::kNone;
  bool refuses_heads = false;    // of other sizes, before a layer is built
  bool fails_elsewhere = false;  // on other platforms by an import, after which no other is tried
  bool documented = true;        // a row of the documentation's tables
  bool ring = false;             // can rotate keys and values round a ring (gives the softmax's log-sum-exp)
  std::span<const DiffusionParameter> parameters{};
  // Throws UserError for parameters that do not fit each other; null: nothing to check.
  void (*check)(const DiffusionParameters& parameters) = nullptr;
  std::unique_ptr<DiffusionPrice> (*create)(const proto::HardwareProfile& profile,
                                            const DiffusionParameters& parameters) = nullptr;
  std::string_view note{};  // of the matrix
};

// The `create` of a price whose class takes these two.
template <typename Price>
std::unique_ptr<DiffusionPrice> create_price(const proto::HardwareProfile& profile,
                                             const DiffusionParameters& parameters) {
  return std::make_unique<Price>(profile, parameters);
}

}  // namespace tpsim::attention
