// The two matrices that are printed are the reference's, cell for cell.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "attention/selection/registry.h"

namespace tpsim::attention::support_matrix_test {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// The facts of ../shared/reference/002…, which wins where documents disagree: y and n stand for ✅ and ❌.
const Rows kMha = {
    {"FlashInfer", "y", "y", "n", "y", "y", "y", "n"},
    {"FA3 (FlashAttention 3)", "y", "y", "n", "y", "y", "y", "y"},
    {"FA4 (FlashAttention 4)", "128", "n", "y", "n", "n", "n", "y"},
    {"Triton", "n", "n", "y", "y", "y", "y", "y"},
    {"Torch Native (SDPA)", "n", "y", "y", "n", "n", "n", "y"},
    {"FlexAttention (PyTorch)", "n", "n", "y", "n", "n", "n", "n"},
    {"TRTLLM MHA", "16, 32 or 64", "y", "y", "y", "n", "y", "n"},
    {"Dual Chunk FlashAttention", "y", "n", "n", "n", "n", "n", "n"},
    {"AITER (ROCm)", "y", "y", "n", "y", "y", "n", "y"},
    {"Wave (ROCm)", "y", "n", "n", "n", "n", "n", "n"},
    {"Ascend (NPU)", "y", "n", "n", "n", "n", "n", "y"},
    {"Intel XPU", "y", "n", "n", "n", "n", "y", "n"},
    {"Intel AMX (CPU)", "n", "n", "n", "n", "n", "n", "n"},
};
const Rows kMla = {
    {"FlashInfer MLA", "1", "n", "y", "y", "y", "n"},
    {"FlashMLA", "64", "y", "y", "y", "y", "n"},
    {"Cutlass MLA", "128", "y", "y", "y", "y", "n"},
    {"TRTLLM MLA (Blackwell)", "32 or 64", "y", "y", "y", "y", "n"},
    {"FA3 (FlashAttention 3)", "n/a", "n", "n", "y", "y", "⚠️ (page_size=1 only)"},
    {"Triton", "n/a", "n", "n", "n", "y", "⚠️ (page_size=1 only)"},
    {"FA4", "1", "n", "y", "n", "n", "n"},
    {"Ascend MLA (NPU)", "128", "n", "n", "n", "n", "n"},
};

Rows spelt(Rows rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) {
      if (cell == "y") cell = "✅";
      if (cell == "n") cell = "❌";
    }
  }
  return rows;
}

Rows cells(const SupportMatrix& matrix) {
  Rows rows;
  for (const SupportMatrix::Line& line : matrix.lines) rows.push_back(line.cells);
  return rows;
}

TEST(SupportMatrix, IsTheReferences) {
  EXPECT_EQ(cells(mha_matrix()), spelt(kMha));
  EXPECT_EQ(cells(mla_matrix()), spelt(kMla));
}

std::string markdown(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line;
}

TEST(SupportMatrix, IsTheTextOfTheReference) {
  const std::filesystem::path file =
      std::filesystem::path(TPSIM_SHARED_DATA) / "../reference/002_a8f55f341ad27a72.txt";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is absent";
  std::ifstream stream(file);
  std::vector<std::string> expected;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("|") && !line.starts_with("|---")) expected.push_back(line);
  }
  std::vector<std::string> printed;
  for (const SupportMatrix& matrix : {mha_matrix(), mla_matrix()}) {
    printed.push_back(markdown(matrix.columns));
    for (const SupportMatrix::Line& line : matrix.lines) printed.push_back(markdown(line.cells));
  }
  EXPECT_EQ(printed, expected);
}

}  // namespace
}  // namespace tpsim::attention::support_matrix_test
