// How an attention backend describes itself: its row of SGLang's support matrices, when SGLang chooses it,
// and how it is made. A backend is one file of attention/backends that defines one BackendDescription of its
// name; attention/CMakeLists.txt lists the names in order of preference, and everything else reads that list
// (registry.h).
//
// Source of the rows: the support matrices, page-size constraints and "Automatic Selection Logic" of SGLang's
// attention backend documentation (the newest in shared/reference), and its list of backend names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attention/backend.h"
#include "attention/gpu_generation.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

enum class Support : std::uint8_t { kNo, kYes, kPageSizeOneOnly };

// Page sizes, in tokens, that kernels read natively.
class PageSizes {
 public:
  // Any.
  constexpr PageSizes() = default;
  constexpr PageSizes(std::initializer_list<std::uint32_t> sizes) {
    for (const std::uint32_t size : sizes) sizes_[count_++] = size;
  }
  constexpr bool any() const { return count_ == 0; }
  // Tokens are read one by one, whatever the pool's page size is.
  constexpr bool one() const { return count_ == 1 && sizes_[0] == 1; }
  constexpr std::span<const std::uint32_t> list() const { return {sizes_.data(), count_}; }
  constexpr bool contains(std::uint32_t size) const {
    for (const std::uint32_t known : list()) {
      if (known == size) return true;
    }
    return any();
  }
  // "any", "1", "16,32,64"
  std::string text() const;

 private:
  std::array<std::uint32_t, 4> sizes_ = {};
  std::size_t count_ = 0;
};

// One row of the matrices. A backend without MHA (or MLA) form has has_mha (has_mla) false, and its other
// mha_ (mla_) fields mean nothing.
struct BackendRow {
  std::string_view name{};  // as --attention-backend spells it
  std::string_view title{};
  GpuGenerations generations{};
  bool prefill_only = false;
  bool supports_cuda_graph = true;

  bool has_mha = false;
  PageSizes mha_page_sizes{};
  Support mha_fp8 = Support::kNo, mha_fp4 = Support::kNo;
  Support mha_spec = Support::kNo, mha_spec_topk = Support::kNo;
  Support sliding_window = Support::kNo, multimodal = Support::kNo;

  bool has_mla = false;
  PageSizes mla_page_sizes{};
  Support mla_fp8 = Support::kNo, mla_fp4 = Support::kNo, mla_chunked_prefix = Support::kNo;
  Support mla_spec = Support::kNo, mla_spec_topk = Support::kNo;
};

// What SGLang looks at where it chooses a backend itself.
struct Selection {
  GpuGeneration generation = GpuGeneration::kHopper;
  bool mla = false;
};

struct BackendDescription {
  BackendRow row;
  // Null where tpsim does not implement the backend.
  std::unique_ptr<AttentionBackend> (*create)(const proto::HardwareProfile& profile,
                                              std::uint32_t page_size) = nullptr;
  // Why SGLang chooses this backend where none is named, for a sentence; empty where it does not. The first
  // of the list that has a reason is chosen.
  std::string_view (*chosen_for)(const Selection& selection) = nullptr;

  constexpr bool implemented() const { return create != nullptr; }
};

// The `create` of a backend whose class takes these two.
template <typename Backend>
std::unique_ptr<AttentionBackend> create_backend(const proto::HardwareProfile& profile,
                                                 std::uint32_t page_size) {
  return std::make_unique<Backend>(profile, page_size);
}

}  // namespace tpsim::attention
