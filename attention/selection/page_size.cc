#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "attention/selection/registry.h"

namespace tpsim::attention {
namespace {

// Those of --page-size.
constexpr std::array<std::uint32_t, 6> kSizes = {1, 16, 32, 64, 128, 256};

constexpr std::uint32_t kBlock = 128;  // of model_overrides/minimax_m3.py

struct Half {
  const BackendRow& row;
  PageSizes pages;
};

std::vector<Half> binding_halves(const CombinationRequest& request) {
  std::vector<Half> halves;
  const auto add = [&](const std::string& name) {
    const BackendRow& row = find_backend(name, request.flag).row;
    halves.push_back({row, pool_pages(row, request)});
  };
  add(request.pair.decode);
  if (!request.mla && request.pair.prefill != request.pair.decode) add(request.pair.prefill);
  return halves;
}

std::vector<std::uint32_t> common_sizes(const std::vector<Half>& halves) {
  std::vector<std::uint32_t> sizes(kSizes.begin(), kSizes.end());
  for (const Half& half : halves)
    std::erase_if(sizes, [&](std::uint32_t size) { return !half.pages.contains(size); });
  return sizes;
}

// "use flashinfer, triton for decode": backends that decode on pages of the prefill half.
std::string other_decoders(CombinationRequest request) {
  std::string names;
  request.page_size = 0;
  for (const BackendDescription* backend : backend_list()) {
    request.pair.decode = backend->row.name;
    if (prefills_only(backend->row, request) || common_sizes(binding_halves(request)).empty()) continue;
    if (obstacle(request).empty()) names += (names.empty() ? "" : ", ") + std::string(backend->row.name);
  }
  return names.empty() ? "name another backend for one of them" : fmt::format("use {} for decode", names);
}

// The half that has most to say, for sentences.
const Half& strictest(const std::vector<Half>& halves) {
  return *std::ranges::max_element(halves, {}, [](const Half& half) {
    return half.pages.any() ? 0U : kSizes.size() + 1 - half.pages.list().size();
  });
}

}  // namespace

PageSizes pool_pages(const BackendRow& row, const Selection& selection) {
  if (selection.generation == GpuGeneration::kXpu && !row.xpu_pool_pages.any()) return row.xpu_pool_pages;
  if (!row.pool_pages.any()) return row.pool_pages;
  if (selection.mla) return row.mla_page_sizes;
  if (selection.block_sparse && !row.block_sparse_pages.any()) return row.block_sparse_pages;
  return row.mha_page_sizes.one() ? PageSizes() : row.mha_page_sizes;
}

PageChoice choose_page_size(const CombinationRequest& request, std::optional<std::uint32_t> given) {
  const std::vector<Half> halves = binding_halves(request);
  const std::vector<std::uint32_t> sizes = common_sizes(halves);
  if (sizes.empty()) return {.page_size = given.value_or(1)};
  if (given && std::ranges::find(sizes, *given) != sizes.end()) return {.page_size = *given};
  const bool blocks = !given && request.block_sparse && request.generation == GpuGeneration::kHopper &&
                      std::ranges::all_of(halves, [](const Half& half) { return half.row.pages_of_blocks; });
  if (blocks)
    return {.page_size = kBlock,
            .note = fmt::format("--page-size: {} is chosen, the blocks of tokens that this model attends to",
                                kBlock)};
  if (sizes.front() == 1) return {.page_size = given.value_or(1)};  // pages of one token, unless refused
  const Half& strict = strictest(halves);
  const std::string pages = strict.pages.words();
  const std::uint32_t chosen = sizes.back();
  if (given)
    return {.page_size = chosen,
            .note = fmt::format(
                "--page-size {}: {} works on pages of {} tokens only, {} is used instead, as SGLang does",
                *given, strict.row.name, pages, chosen),
            .changed = true};
  return {.page_size = chosen,
          .note = fmt::format("--page-size: {} is chosen ({} works on pages of {} tokens only)", chosen,
                              strict.row.name, pages)};
}

std::string page_obstacle(const CombinationRequest& request) {
  const std::vector<Half> halves = binding_halves(request);
  const std::vector<std::uint32_t> sizes = common_sizes(halves);
  if (sizes.empty() && halves.size() == 2)
    return fmt::format("--page-size: {} works on pages of {} tokens and {} of {}: none serves both; {}",
                       halves[1].row.name, halves[1].pages.words(), halves[0].row.name,
                       halves[0].pages.words(), other_decoders(request));
  if (request.page_size == 0 || std::ranges::find(sizes, request.page_size) != sizes.end()) return "";
  const Half& strict = strictest(halves);
  return fmt::format("--page-size {}: {} works on pages of {} token{} only{}", request.page_size,
                     strict.row.name, strict.pages.words(), strict.pages.one() ? "" : "s",
                     sizes.empty() ? "" : fmt::format("; use {}", fmt::join(sizes, " or ")));
}

}  // namespace tpsim::attention
