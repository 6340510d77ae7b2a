// The kinds of devices that attention backends tell apart, as a hardware profile's "architecture" spells
// them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace tpsim::attention {

enum class GpuGeneration : std::uint8_t {
  kTuring,          // SM 7.5
  kAmpere,          // SM 8.0, 8.6
  kAda,             // SM 8.9
  kHopper,          // SM 9.0
  kBlackwell,       // SM 10.x: B200, GB200, B300
  kBlackwellSm120,  // SM 12.0: RTX PRO 6000 and GeForce, without SM 10's tensor memory
  kRocm,            // AMD CDNA
  kNpu,             // Huawei Ascend
  kXpu,             // Intel GPU
  kCpu,
};

// "hopper", "blackwell_sm120", "rocm" …
std::string_view to_string(GpuGeneration generation);
std::optional<GpuGeneration> parse_gpu_generation(std::string_view name);

// A set of them.
class GpuGenerations {
 public:
  constexpr GpuGenerations() = default;
  constexpr GpuGenerations(std::initializer_list<GpuGeneration> members) {
    for (const GpuGeneration member : members) bits_ |= bit(member);
  }
  constexpr bool contains(GpuGeneration generation) const { return (bits_ & bit(generation)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr GpuGenerations operator|(GpuGenerations a, GpuGenerations b) {
    a.bits_ |= b.bits_;
    return a;
  }
  // "hopper, blackwell", in the order of the enumeration.
  std::string names() const;

 private:
  static constexpr std::uint32_t bit(GpuGeneration generation) {
    return 1U << static_cast<std::uint32_t>(generation);
  }
  std::uint32_t bits_ = 0;
};

// NVIDIA's.
inline constexpr GpuGenerations kCudaGenerations = {
    GpuGeneration::kTuring, GpuGeneration::kAmpere,    GpuGeneration::kAda,
    GpuGeneration::kHopper, GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120};
inline constexpr GpuGenerations kAllGenerations =
    kCudaGenerations |
    GpuGenerations{GpuGeneration::kRocm, GpuGeneration::kNpu, GpuGeneration::kXpu, GpuGeneration::kCpu};

}  // namespace tpsim::attention
