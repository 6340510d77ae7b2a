// MLA kernels out of tables that time whole modules: what a row's other operators take is known, or is what
// the same module took with another kernel beyond that one's price.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/lab/kernels/attention_rows.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

// The bf16 rows of mla_context_module_perf (mla_generation_module_perf for a decode): a whole attention
// module of DeepSeek V3, less its projections and small kernels at the prices of `profile`; those of which
// the attention is less than half are left out.
std::vector<kernels::AttentionRow> module_rows(const std::filesystem::path& folder,
                                               const std::string& kernel_source,
                                               kernels::AttentionKernel kernel,
                                               const proto::HardwareProfile& profile);

// Rows of `name` in wideep_context_mla_perf (wideep_generation_mla_perf), modules of SGLang that were
// measured with several backends, for whose shape there is one of `known`, too: their times differ by what
// the kernels differ by. Where the kernel is too small a part of its module, or the module took the host's
// time, a row is left out.
std::vector<kernels::AttentionRow> rows_beside(const std::filesystem::path& folder, const std::string& name,
                                               const std::string& known, kernels::AttentionKernel kernel,
                                               const proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
