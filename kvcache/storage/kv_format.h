// The number formats that a KV cache is stored in, and their conversions from and to fp32.
//
// Sources: IEEE 754 binary16; bfloat16 (round to nearest even); OCP 8-bit floating point specification
// (E4M3 without infinities, E5M2 with them), values beyond the largest saturate; OCP microscaling E2M1 with a
// scale for every 16 elements.
#pragma once

#include <cstdint>
#include <string_view>

namespace tpsim::kvcache {

enum class KvFormat : std::uint8_t { kFp32, kBf16, kFp16, kFp8E4M3, kFp8E5M2, kFp4E2M1 };

// "float32", "bfloat16", "float16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1": SGLang's --kv-cache-dtype.
std::string_view to_string(KvFormat format);

// Bytes that `elements` elements take, block scales included.
std::uint64_t stored_bytes(KvFormat format, std::uint64_t elements);

}  // namespace tpsim::kvcache
