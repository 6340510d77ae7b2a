#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "proto/base/ceil_div.h"
#include "proto/base/error.h"
#include "proto/base/number_format.h"
#include "rank/weights/checkpoint.h"
#include "rank/weights/stored_type.h"

namespace tpsim::rank {
namespace {

using Shape = std::vector<std::uint64_t>;

constexpr std::array<float, 16> kE2M1 = {0,     0.5F,  1,     1.5F,  2,     3,     4,     6,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

[[noreturn]] void refuse(const std::string& where, const StoredView& tensor, const std::string& wanted) {
  throw_user_error("{}: tensor {} is {} of shape {}, but its quantisation asks for {}", where,
                   rank::in_quotes(tensor.name), to_string(tensor.type), shape_text(tensor.shape), wanted);
}

std::uint8_t byte_at(const StoredView& tensor, std::uint64_t i) {
  return static_cast<std::uint8_t>(tensor.data[i]);
}
std::uint32_t word_at(const StoredView& tensor, std::uint64_t i) {
  std::uint32_t word;
  std::memcpy(&word, tensor.data + 4 * i, sizeof word);
  return word;
}
std::uint32_t nibble(std::uint32_t word, std::uint64_t i) { return word >> (4 * i) & 15U; }

// All scales of a tensor as fp32; powers of two (e8m0) may be stored as bytes.
std::vector<float> read_scales(const StoredView& tensor, const std::string& where) {
  std::vector<float> out(tensor.elements);
  switch (tensor.type) {
    case StoredType::kBF16:
    case StoredType::kF16:
    case StoredType::kF32:
      to_fp32(tensor.type, tensor.data, out.size(), out.data());
      break;
    case StoredType::kF8E4M3:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = from_e4m3(byte_at(tensor, i));
      break;
    case StoredType::kU8:
    case StoredType::kF8E8M0:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::ldexp(1.0F, byte_at(tensor, i) - 127);
      break;
    default:
      refuse(where, tensor, "scales in BF16, F16, F32, F8_E4M3 or F8_E8M0");
  }
  return out;
}

// The result of a product with a scale of that type.
float rounded(float value, StoredType scale) {
  if (scale == StoredType::kBF16) return from_bf16(to_bf16(value));
  if (scale == StoredType::kF16) return from_fp16(to_fp16(value));
  return value;
}

// fp8 or int8, [n, k].
class EightBit final : public QuantisedTensor {
 public:
  EightBit(StoredView weight, const StoredView& scale, const std::string& where)
      : QuantisedTensor(weight.shape), weight_(std::move(weight)), scale_type_(scale.type) {
    for (int code = 0; code < 256; ++code) {
      values_[static_cast<std::size_t>(code)] =
          weight_.type == StoredType::kI8       ? static_cast<float>(static_cast<std::int8_t>(code))
          : weight_.type == StoredType::kF8E5M2 ? from_e5m2(static_cast<std::uint8_t>(code))
                                                : from_e4m3(static_cast<std::uint8_t>(code));
    }
    scales_ = read_scales(scale, where);
    if (weight_.shape.size() != 2 || weight_.elements == 0) refuse(where, weight_, "a matrix");
    const std::uint64_t n = weight_.shape[0];
    const std::uint64_t k = weight_.shape[1];
    if (scale.elements == 1) {
      block_n_ = n;
      block_k_ = k;
    } else if (scale.elements == n && scale.shape.front() == n) {
      block_n_ = 1;
      block_k_ = k;
    } else if (scale.shape.size() == 2 && scale.elements > 0) {
      block_n_ = block(n, scale.shape[0]);
      block_k_ = block(k, scale.shape[1]);
    }
    if (block_n_ == 0 || block_k_ == 0)
      refuse(where, scale, "one for the tensor, for each of its rows, or for blocks of it");
    per_row_ = ceil_div(k, block_k_);
  }

 private:
  // What `blocks` blocks of `size` elements hold each: a power of two, the last one may be short; else an
  // equal share; 0: neither.
  static std::uint64_t block(std::uint64_t size, std::uint64_t blocks) {
    for (std::uint64_t b = 1; b < 2 * size; b *= 2) {
      if (ceil_div(size, b) == blocks) return b;
    }
    return blocks > 0 && size % blocks == 0 ? size / blocks : 0;
  }

  void read_row(std::uint64_t row, std::uint64_t column, std::uint64_t count, float* out) const override {
    const char* from = weight_.data + row * weight_.shape[1] + column;
    const float* scales = scales_.data() + row / block_n_ * per_row_;
    for (std::uint64_t i = 0; i < count;) {
      const std::uint64_t block = (column + i) / block_k_;
      const std::uint64_t end = std::min(count, (block + 1) * block_k_ - column);
      for (; i < end; ++i)
        out[i] = rounded(values_[static_cast<std::uint8_t>(from[i])] * scales[block], scale_type_);
    }
  }

  StoredView weight_;
  StoredType scale_type_;
  std::array<float, 256> values_{};
  std::vector<float> scales_;
  std::uint64_t block_n_ = 0, block_k_ = 0, per_row_ = 0;
};

// Two e2m1 codes in a byte, the first in the low half; a scale in fp8 for 16, and one for the tensor.
class Nvfp4 final : public QuantisedTensor {
 public:
  // `global`: multiplied to the fp8 scales; with `divide` they are divided by it.
  Nvfp4(StoredView weight, const StoredView& scale, const StoredView& global, bool divide,
        const std::string& where)
      : QuantisedTensor({weight.shape.at(0), 2 * weight.shape.at(1)}), weight_(std::move(weight)) {
    if (scale.shape != Shape{shape()[0], shape()[1] / 16} || shape()[1] % 16 != 0)
      refuse(where, scale, fmt::format("shape {}", shape_text({shape()[0], shape()[1] / 16})));
    if (global.elements != 1) refuse(where, global, "one number");
    scales_ = read_scales(scale, where);
    const float all = read_scales(global, where)[0];
    for (float& s : scales_) s = divide ? s / all : s * all;
  }

 private:
  void read_row(std::uint64_t row, std::uint64_t column, std::uint64_t count, float* out) const override {
    const std::uint64_t begin = row * shape()[1] + column;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = begin + i;
      out[i] = kE2M1[nibble(byte_at(weight_, at / 2), at % 2)] * scales_[at / 16];
    }
  }

  StoredView weight_;
  std::vector<float> scales_;
};

// Eight 4-bit codes in a word. Outputs n, inputs k.
class PackedInt4 final : public QuantisedTensor {
 public:
  enum class Layout : std::uint8_t {
    kGptq,        // codes [k / 8, n], zeros [groups, n / 8], scales [groups, n]
    kAwq,         // codes [k, n / 8], zeros and scales as GPTQ's
    kCompressed,  // codes [n, k / 8], scales [n, groups]; symmetric: zero point 8
  };
  struct Parts {
    StoredView codes, scales;
    std::optional<StoredView> zeros, groups;  // zeros, and the group of each input
  };

  PackedInt4(Layout layout, Parts parts, std::uint64_t n, std::uint64_t k, int zero_offset,
             const std::string& where)
      : QuantisedTensor({n, k}), layout_(layout), zero_offset_(zero_offset), parts_(std::move(parts)) {
    if (parts_.scales.shape.size() != 2) refuse(where, parts_.scales, "a matrix");
    const bool compressed = layout == Layout::kCompressed;
    num_groups_ = parts_.scales.shape[compressed ? 1 : 0];
    if (num_groups_ == 0 || parts_.scales.shape[compressed ? 0 : 1] != n)
      refuse(where, parts_.scales, fmt::format("{} outputs", n));
    scales_ = read_scales(parts_.scales, where);
    group_.resize(k);
    const std::uint64_t size = ceil_div(k, num_groups_);
    for (std::uint64_t i = 0; i < k; ++i) group_[i] = static_cast<std::uint32_t>(i / size);
    if (parts_.groups) {
      const StoredView& groups = *parts_.groups;
      if (groups.type != StoredType::kI32 || groups.elements != k)
        refuse(where, groups, fmt::format("I32 of shape [{}]", k));
      for (std::uint64_t i = 0; i < k; ++i) group_[i] = word_at(groups, i);
      if (*std::max_element(group_.begin(), group_.end()) >= num_groups_)
        refuse(where, groups, fmt::format("groups below {}", num_groups_));
    }
    if (!parts_.zeros) return;
    const Shape wanted =
        compressed ? Shape{ceil_div(n, 8U), num_groups_} : Shape{num_groups_, ceil_div(n, 8U)};
    if (parts_.zeros->type != StoredType::kI32 || parts_.zeros->shape != wanted)
      refuse(where, *parts_.zeros, fmt::format("I32 of shape {}", shape_text(wanted)));
  }

 private:
  static constexpr std::array<std::uint8_t, 8> kAwqOrder = {0, 4, 1, 5, 2, 6, 3, 7};

  int zero(std::uint64_t n, std::uint32_t group) const {
    if (!parts_.zeros) return 8;
    const std::uint64_t outputs = shape()[0];
    if (layout_ == Layout::kCompressed)
      return static_cast<int>(nibble(word_at(*parts_.zeros, n / 8 * num_groups_ + group), n % 8));
    const std::uint64_t at = layout_ == Layout::kAwq ? kAwqOrder[n % 8] : n % 8;
    return static_cast<int>(nibble(word_at(*parts_.zeros, group * (outputs / 8) + n / 8), at)) + zero_offset_;
  }
  int code(std::uint64_t n, std::uint64_t k) const {
    const std::uint64_t outputs = shape()[0];
    switch (layout_) {
      case Layout::kGptq:
        return static_cast<int>(nibble(word_at(parts_.codes, k / 8 * outputs + n), k % 8));
      case Layout::kAwq:
        return static_cast<int>(nibble(word_at(parts_.codes, k * (outputs / 8) + n / 8), kAwqOrder[n % 8]));
      case Layout::kCompressed:
        return static_cast<int>(nibble(word_at(parts_.codes, n * ceil_div(shape()[1], 8U) + k / 8), k % 8));
    }
    return 0;
  }

  void read_row(std::uint64_t row, std::uint64_t column, std::uint64_t count, float* out) const override {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t k = column + i;
      const std::uint32_t group = group_[k];
      const float scale =
          scales_[layout_ == Layout::kCompressed ? row * num_groups_ + group : group * shape()[0] + row];
      out[i] = rounded(static_cast<float>(code(row, k) - zero(row, group)) * scale, parts_.scales.type);
    }
  }

  Layout layout_;
  int zero_offset_;
  Parts parts_;
  std::uint64_t num_groups_ = 0;
  std::vector<float> scales_;
  std::vector<std::uint32_t> group_;
};

// gpt-oss: blocks [experts, n, k / 32, 16 bytes], scales [experts, n, k / 32]; dequantised [experts, k, n].
class Mxfp4 final : public QuantisedTensor {
 public:
  Mxfp4(StoredView blocks, const StoredView& scales, const std::string& where)
      : QuantisedTensor({blocks.shape[0], blocks.shape[2] * 32, blocks.shape[1]}),
        blocks_(std::move(blocks)) {
    if (scales.shape != Shape{blocks_.shape[0], blocks_.shape[1], blocks_.shape[2]})
      refuse(where, scales, "a byte for each block");
    scales_ = read_scales(scales, where);
  }

 private:
  void read_row(std::uint64_t row, std::uint64_t column, std::uint64_t count, float* out) const override {
    const std::uint64_t k = row % shape()[1];
    const std::uint64_t expert = row / shape()[1];
    const std::uint64_t per_row = blocks_.shape[2];
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t block = (expert * shape()[2] + column + i) * per_row + k / 32;
      // Beyond bf16's range torch's ldexp and this one agree: 2^128 is infinite, tiny ones are exact in fp32.
      out[i] = kE2M1[nibble(byte_at(blocks_, block * 16 + k % 32 / 2), k % 2)] * scales_[block];
    }
  }

  StoredView blocks_;
  std::vector<float> scales_;
};

class Opener {
 public:
  Opener(const FindTensor& find, const std::string& where) : find_(find), where_(where) {}

  std::unique_ptr<QuantisedTensor> open(const std::string& name, int gptq_zero_offset) const {
    if (const auto blocks = find_(name + "_blocks")) {
      if (blocks->type != StoredType::kU8 || blocks->shape.size() != 4 || blocks->shape[3] != 16)
        refuse(where_, *blocks, "U8 of 16 bytes a block");
      return std::make_unique<Mxfp4>(*blocks, need(name + "_scales", *blocks), where_);
    }
    constexpr std::string_view kWeight = ".weight";
    if (!name.ends_with(kWeight)) return nullptr;
    const std::string base = name.substr(0, name.size() - kWeight.size());
    if (const auto weight = find_(name)) return eight_or_four_bit(base, *weight);
    if (const auto packed = find_(base + ".weight_packed")) return compressed(base, *packed);
    if (const auto codes = find_(base + ".qweight")) return integers(base, *codes, gptq_zero_offset);
    return nullptr;
  }

 private:
  StoredView need(const std::string& name, const StoredView& because) const {
    if (auto found = find_(name)) return *std::move(found);
    throw_user_error("{}: tensor {} is quantised, but its {} is missing", where_,
                     rank::in_quotes(because.name), rank::in_quotes(name));
  }
  void require_matrix(const StoredView& tensor, StoredType type) const {
    if (tensor.type != type || tensor.shape.size() != 2 || tensor.elements == 0)
      refuse(where_, tensor, fmt::format("a matrix in {}", to_string(type)));
  }

  std::unique_ptr<QuantisedTensor> eight_or_four_bit(const std::string& base,
                                                     const StoredView& weight) const {
    if (weight.type == StoredType::kU8) {
      require_matrix(weight, StoredType::kU8);
      const StoredView scale = need(base + ".weight_scale", weight);
      return std::make_unique<Nvfp4>(weight, scale, need(base + ".weight_scale_2", weight), false, where_);
    }
    if (weight.type != StoredType::kF8E4M3 && weight.type != StoredType::kF8E5M2 &&
        weight.type != StoredType::kI8)
      return nullptr;
    if (const auto scale = find_(base + ".weight_scale_inv"))
      return std::make_unique<EightBit>(weight, *scale, where_);
    return std::make_unique<EightBit>(weight, need(base + ".weight_scale", weight), where_);
  }

  std::unique_ptr<QuantisedTensor> compressed(const std::string& base, const StoredView& packed) const {
    const StoredView scale = need(base + ".weight_scale", packed);
    if (packed.type == StoredType::kU8) {
      require_matrix(packed, StoredType::kU8);
      return std::make_unique<Nvfp4>(packed, scale, need(base + ".weight_global_scale", packed), true,
                                     where_);
    }
    require_matrix(packed, StoredType::kI32);
    const StoredView shape = need(base + ".weight_shape", packed);
    if ((shape.type != StoredType::kI64 && shape.type != StoredType::kI32) || shape.elements != 2)
      refuse(where_, shape, "two whole numbers");
    const bool wide = shape.type == StoredType::kI64;  // little-endian: the low word comes first
    const std::uint64_t n = word_at(shape, 0);
    const std::uint64_t k = word_at(shape, wide ? 2 : 1);
    if (packed.shape != Shape{n, ceil_div(k, 8U)})
      refuse(where_, packed, fmt::format("{} rows of eight {} bit codes a word: 4-bit ones", n, k));
    return std::make_unique<PackedInt4>(
        PackedInt4::Layout::kCompressed,
        PackedInt4::Parts{packed, scale, find_(base + ".weight_zero_point"), find_(base + ".weight_g_idx")},
        n, k, 0, where_);
  }

  std::unique_ptr<QuantisedTensor> integers(const std::string& base, const StoredView& codes,
                                            int gptq_zero_offset) const {
    require_matrix(codes, StoredType::kI32);
    const StoredView scales = need(base + ".scales", codes);
    if (scales.shape.size() != 2) refuse(where_, scales, "a matrix");
    const std::uint64_t n = scales.shape[1];
    const bool gptq = codes.shape[1] == n;
    if (n % 8 != 0 || (!gptq && codes.shape[1] != n / 8))
      refuse(where_, codes, fmt::format("4-bit codes of {} outputs", n));
    return std::make_unique<PackedInt4>(gptq ? PackedInt4::Layout::kGptq : PackedInt4::Layout::kAwq,
                                        PackedInt4::Parts{codes, scales, need(base + ".qzeros", codes),
                                                          gptq ? find_(base + ".g_idx") : std::nullopt},
                                        n, gptq ? codes.shape[0] * 8 : codes.shape[0],
                                        gptq ? gptq_zero_offset : 0, where_);
  }

  const FindTensor& find_;
  const std::string& where_;
};

}  // namespace

void QuantisedTensor::read(std::uint64_t first, std::uint64_t count, float* out) const {
  const std::uint64_t width = shape_.back();
  while (count > 0) {
    const std::uint64_t column = first % width;
    const std::uint64_t part = std::min(count, width - column);
    read_row(first / width, column, part, out);
    first += part;
    out += part;
    count -= part;
  }
}

std::unique_ptr<QuantisedTensor> open_quantised(const FindTensor& find, const std::string& name,
                                                int gptq_zero_offset, const std::string& where) {
  return Opener(find, where).open(name, gptq_zero_offset);
}

}  // namespace tpsim::rank
