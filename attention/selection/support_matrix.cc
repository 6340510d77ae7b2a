#include <algorithm>
#include <cstdint>

#include "attention/selection/registry.h"

namespace tpsim::attention {
namespace {

std::string cell(Support support) {
  switch (support) {
    case Support::kNo:
      return "❌";
    case Support::kYes:
      return "✅";
    case Support::kPageSizeOneOnly:
      return "⚠️ (page_size=1 only)";
  }
  return "";
}

// MHA kernels page natively, in any size or in some; one that does not takes pages apart into tokens.
std::string mha_pages(const PageSizes& pages) {
  return pages.any() ? "✅" : pages.one() ? "❌" : pages.words();
}
std::string mla_pages(const PageSizes& pages) { return pages.any() ? "n/a" : pages.words(); }

template <typename Cells>
void add_lines(SupportMatrix& matrix, std::uint8_t BackendRow::*place, Cells cells) {
  std::vector<const BackendRow*> rows;
  for (const BackendDescription* backend : backend_list()) {
    if (backend->row.*place > 0) rows.push_back(&backend->row);
  }
  std::ranges::sort(rows, {}, place);
  for (const BackendRow* row : rows) matrix.lines.push_back({row->name, cells(*row)});
}

}  // namespace

SupportMatrix mha_matrix() {
  SupportMatrix matrix = {.title = "MHA Backends",
                          .columns = {"Backend", "Page Size > 1 (native)", "FP8 KV Cache", "FP4 KV Cache",
                                      "Spec topk=1", "Spec topk>1", "Sliding Window", "MultiModal"},
                          .lines = {}};
  add_lines(matrix, &BackendRow::mha_place, [](const BackendRow& row) {
    return std::vector<std::string>{std::string(row.title),   mha_pages(row.mha_page_sizes),
                                    cell(row.mha_fp8),        cell(row.mha_fp4),
                                    cell(row.mha_spec),       cell(row.mha_spec_topk),
                                    cell(row.sliding_window), cell(row.multimodal)};
  });
  return matrix;
}

SupportMatrix mla_matrix() {
  SupportMatrix matrix = {.title = "MLA Backends",
                          .columns = {"Backend", "Native Page Sizes", "FP8 KV Cache", "FP4 KV Cache",
                                      "Chunked Prefix Cache", "Spec topk=1", "Spec topk>1"},
                          .lines = {}};
  add_lines(matrix, &BackendRow::mla_place, [](const BackendRow& row) {
    return std::vector<std::string>{std::string(row.mla_title.empty() ? row.title : row.mla_title),
                                    mla_pages(row.mla_page_sizes),
                                    cell(row.mla_fp8),
                                    cell(row.mla_fp4),
                                    cell(row.mla_chunked_prefix),
                                    cell(row.mla_spec),
                                    cell(row.mla_spec_topk)};
  });
  return matrix;
}

}  // namespace tpsim::attention
