// Versions of the messages of this folder. A reader refuses every version that it does not know: fields may
// be added under the same version only if an old reader may ignore them.
#pragma once

#include <cstdint>

namespace tpsim {

inline constexpr std::uint32_t kRequestVersion = 1;
inline constexpr std::uint32_t kForwardBatchVersion = 1;
inline constexpr std::uint32_t kBatchStreamVersion = 1;
inline constexpr std::uint32_t kHardwareProfileVersion = 1;
inline constexpr std::uint32_t kRunReportVersion = 1;
inline constexpr std::uint32_t kValidationVersion = 1;
// Of everything that serialize() names.
inline constexpr std::uint32_t kCheckpointVersion = 4;

}  // namespace tpsim
