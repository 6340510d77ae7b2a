// Tables of measured kernels, and what they say of a profile's operator classes.
//
// Tables are FOLDER/TABLE.csv or .csv.gz with TABLE one of gemm_perf, moe_perf, custom_allreduce_perf,
// nccl_perf, context_attention_perf and generation_attention_perf, in the columns of AIConfigurator's public
// collection (launch/kernels). A class is fitted by fit_operators.h or attention_fit.h, which leave rows out;
// it is taken where those are predicted better than before.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/calibrate/surface_fit.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

struct KernelTableFile {
  std::filesystem::path folder;
  std::string table;  // "gemm_perf"
};

// The tables that `given` means: one, or a folder of some; none where it is neither. Throws UserError for a
// folder without any.
std::vector<KernelTableFile> kernel_tables(const std::filesystem::path& given);

struct KernelFit {
  std::string operator_class;
  std::string table;
  std::size_t rows = 0;
  RelativeErrors before, after;  // of the rows left out
  std::string reason;            // why the class was left as it was; empty: it was fitted
};

// Fits every class that the tables have rows of, into `profile`. `on_class` is called before each. Throws
// UserError for a malformed table.
std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
