// What tables of measured kernels say of a profile's operator classes.
//
// Tables are FOLDER/TABLE.csv or .csv.gz in the columns of AIConfigurator's public collection
// (launch/lab/kernels; kernel_fits.cc lists them), or a CSV of any name that
// tests/calibration/measure_attention.py, measure_ragged.py, measure_mla.py or measure_ragged_mla.py wrote,
// known by its first line.
//
// A class is fitted by fit_operators.h, attention_fit.h, mla_bmm_fit.h or sparse_fit.h, which
// leave rows out; it is taken where those are predicted better than before.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
#include "proto/hardware.pb.h"

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

struct KernelFit {
  std::string operator_class;
  std::string table;
  ClassFit fit;
  std::string reason;  // why the class was left as it was; empty: it was fitted
};

// Fits every class that the tables have rows of, into `profile`. `on_class` is called before each. Throws
// UserError for a malformed table.
std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
