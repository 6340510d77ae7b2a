// Measured experts behind DeepEP and MegaMoE: rows of wideep_context_moe_perf, wideep_generation_moe_perf and
// dsv4_megamoe_module_perf, each with the distribution of its tokens over the experts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rank/config/weight_format.h"
#include "rank/cost/grouped_experts.h"

namespace tpsim::kernels {

struct GroupedRow {
  rank::GroupedWork work;
  double seconds = 0;
};
struct GroupedRows {
  rank::GroupedKernel kernel = rank::GroupedKernel::kNormal;
  rank::WeightFormat weight;
  std::vector<GroupedRow> rows;
  std::uint64_t unknown = 0;  // whose distribution the table does not tell
  // The prefill's kernels were launched one by one: seconds of their host, which no call stays below.
  double least_seconds = 0;
};

// nullopt: a table of others.
std::optional<rank::GroupedKernel> grouped_kernel(const std::string& table);
// Throws UserError for a malformed one.
GroupedRows grouped_rows(const std::filesystem::path& folder, const std::string& table);

}  // namespace tpsim::kernels
