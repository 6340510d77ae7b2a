// What `tpsim validate` does for each thing that was measured: a load is served by the simulation, a kernel
// is priced alone.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "launch/lab/measurements/measurement_formats.h"
#include "proto/validation.pb.h"

namespace tpsim::launch {

// Serves `load` with the deployment of its flags, in this process, and holds it against what was measured.
// What tpsim refuses is in the row's refusal. May be called by several threads at once. Where `stop` becomes
// true it returns early.
proto::ValidatedRow predict_load(const MeasuredLoad& load, const std::atomic<bool>& stop);

// One table of one GPU's folder.
struct KernelTask {
  std::filesystem::path folder;  // DIR/h200_sxm
  std::string table;             // "gemm_perf"
};
// The tables of `folder`: a folder of such, one for each GPU, or one GPU's, in order of their names. Throws
// UserError naming --kernels where there are none.
std::vector<KernelTask> kernel_tasks(const std::filesystem::path& folder);

// The errors of a table's rows by backend (or class of operator) and number format; of a group of more than
// kMostRows every so many-th is priced. Rows that this command does not price are counted, with the reason.
// Throws UserError for a malformed table. Where `stop` becomes true it returns early.
inline constexpr std::size_t kMostRows = 4000;
std::vector<proto::ValidatedKernel> price_kernels(const KernelTask& task, const std::atomic<bool>& stop);

}  // namespace tpsim::launch
