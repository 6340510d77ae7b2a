// Fits MLA's batched products (rank/llm/mla_cost.h), class "mla_bmm" or "mla_bmm_fp8", to the rows of
// mla_bmm_perf: coefficients by a search, then corrections over heads, tokens and width.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
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

}  // namespace tpsim::calibrate
