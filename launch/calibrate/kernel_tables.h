// Which tables of measured kernels a file or folder of the user's is.
//
// Tables are FOLDER/TABLE.csv or .csv.gz with TABLE one of gemm_perf, moe_perf, custom_allreduce_perf,
// nccl_perf, context_attention_perf and generation_attention_perf, in the columns of AIConfigurator's public
// collection (launch/kernels); or a CSV of any name that tests/calibration/measure_attention.py wrote, known
// by its first line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpsim::calibrate {

struct KernelTableFile {
  std::filesystem::path folder;
  std::string table;  // "gemm_perf"; kOwnAttention of measure_attention.py's
  std::string file;   // of these, whose name may be any

  std::filesystem::path path() const;
  // "gemm_perf of h200_sxm".
  std::string source() const;
};
inline constexpr const char* kOwnAttention = "measure_attention";

// The tables that `given` means: one, or a folder of some; none where it is neither. Throws UserError for a
// folder without any.
std::vector<KernelTableFile> kernel_tables(const std::filesystem::path& given);

// Throws UserError "FILE:LINE: …" for a row that says what no measurement does.
void check_table(const KernelTableFile& file);

}  // namespace tpsim::calibrate
