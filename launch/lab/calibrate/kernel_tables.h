// Which tables of measured kernels a file or folder of the user's is.
//
// Tables are FOLDER/TABLE.csv or .csv.gz with TABLE one of gemm_perf, moe_perf, custom_allreduce_perf,
// nccl_perf, context_attention_perf, generation_attention_perf, context_mla_perf, generation_mla_perf,
// mla_context_module_perf, wideep_context_mla_perf, wideep_generation_mla_perf, mla_bmm_perf,
// dsa_context_module_perf and dsa_generation_module_perf, in the columns of AIConfigurator's public
// collection (launch/lab/kernels); or a CSV of any name that tests/calibration/measure_attention.py,
// measure_ragged.py, measure_mla.py or measure_ragged_mla.py wrote, known by its first line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpsim::calibrate {

struct KernelTableFile {
  std::filesystem::path folder;
  std::string table;  // "gemm_perf"; kOwnAttention or kOwnMla of our own tools' files
  std::string file;   // of these, whose name may be any

  std::filesystem::path path() const;
  // "gemm_perf of h200_sxm".
  std::string source() const;
};
inline constexpr const char* kOwnAttention = "measure_attention";
inline constexpr const char* kOwnMla = "measure_mla";

// The tables that `given` means: one, or a folder of some; none where it is neither. Throws UserError for a
// folder without any.
std::vector<KernelTableFile> kernel_tables(const std::filesystem::path& given);

// Throws UserError "FILE:LINE: …" for a row that says what no measurement does.
void check_table(const KernelTableFile& file);

}  // namespace tpsim::calibrate
