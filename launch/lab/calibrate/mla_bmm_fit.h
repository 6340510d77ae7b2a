// Fits MLA's batched products (rank/llm/mla_cost.h), class "mla_bmm" or "mla_bmm_fp8", to the rows of
// mla_bmm_perf: coefficients by a search, then corrections over heads, tokens and width. And the rows of
// MLA's kernels, which other tables time within whole modules.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

struct BmmRow {
  double heads = 0, tokens = 0, seconds = 0;
  bool into_latent = false;  // W_UK; else W_UV
  bool left_out = false;     // one row in five, by a hash of its shape
};
// Throws UserError for a malformed table.
std::vector<BmmRow> bmm_rows(const std::filesystem::path& folder, bool fp8);

// REQUIRES: rows.
ClassFit fit_bmm(const std::vector<BmmRow>& rows, bool fp8, const proto::HardwareProfile& profile);

// MLA kernels out of tables that time whole modules: what a row's other operators take is known, or is what
// the same module took with another kernel beyond that one's price.

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
