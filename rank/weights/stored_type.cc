#include "rank/weights/stored_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "proto/base/error.h"
#include "proto/base/number_format.h"

namespace tpsim::rank {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

struct Row {
  std::string_view name;
  unsigned bits;
};
// In the order of the enumeration.
constexpr std::array<Row, 22> kRows = {
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},      {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},        {"U64", 64}}};
static_assert(kRows[static_cast<std::size_t>(StoredType::kU64)].name == "U64");

template <typename Convert>
void halves_to_fp32(const char* __restrict from, std::size_t count, float* __restrict out, Convert convert) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    out[i] = convert(bits);
  }
}

}  // namespace

std::string_view to_string(StoredType type) { return kRows[static_cast<std::size_t>(type)].name; }

unsigned bits_of(StoredType type) { return kRows[static_cast<std::size_t>(type)].bits; }

std::optional<StoredType> parse_stored_type(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

bool is_readable(StoredType type) {
  return type == StoredType::kBF16 || type == StoredType::kF16 || type == StoredType::kF32;
}

void to_fp32(StoredType type, const char* from, std::size_t count, float* out) {
  switch (type) {
    case StoredType::kBF16:
      return halves_to_fp32(from, count, out, [](std::uint16_t bits) { return from_bf16(bits); });
    case StoredType::kF16:
      return halves_to_fp32(from, count, out, [](std::uint16_t bits) { return from_fp16(bits); });
    case StoredType::kF32:
      if (count > 0) std::memcpy(out, from, count * sizeof(float));
      return;
    default:
      throw std::logic_error("to_fp32: this type is not readable");
  }
}

std::string in_quotes(std::string_view text) {
  return tpsim::in_quotes(text, 120);  // names of experts' tensors are long
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  constexpr std::size_t kShown = 8;
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), kShown); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return out + (shape.size() > kShown ? ", …]" : "]");
}

}  // namespace tpsim::rank
