// The element types of safetensors files, the conversion to fp32 of those that tpsim computes with, and how
// error messages show what is stored.
//
// Source: the Dtype enumeration of huggingface/safetensors (safetensors/src/tensor.rs), IEEE 754.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::rank {

enum class StoredType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E5M2Fnuz,
  kF8E4M3Fnuz,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64
};

// "BF16", as the file writes it.
std::string_view to_string(StoredType type);
std::optional<StoredType> parse_stored_type(std::string_view name);
unsigned bits_of(StoredType type);

// BF16, F16 and F32.
bool is_readable(StoredType type);

// `count` elements at `from`, which need not be aligned, as fp32: exact, NaN payloads included.
// REQUIRES: is_readable(type).
void to_fp32(StoredType type, const char* from, std::size_t count, float* out);

// The raw bytes of a checkpoint's tensor.
struct StoredView {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 0;
  const char* data = nullptr;  // may be unaligned; lives as long as the checkpoint
};

// Text from files in error messages: in quotes, cut to some 120 bytes, with everything that is not printable
// ASCII as \xNN.
std::string in_quotes(std::string_view text);

// "[2, 3]"; more than eight dimensions are cut.
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace tpsim::rank
