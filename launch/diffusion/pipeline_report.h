// Reports of diffusion pipelines: report.json, its page, and tables for a terminal.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/diffusion/pipeline_args.h"
#include "launch/diffusion/resolve.h"

namespace tpsim::launch {

using Json = nlohmann::ordered_json;

// One request on one deployment; seconds, bytes.
Json generation_json(const PipelineArgs& args, const Pipeline& pipeline, const ResolvedPipeline& resolved,
                     const Generation& generation);
std::string generation_text(const Json& report, bool colour);

// "8 x h200-sxm: ulysses 4, ring 2".
std::string parallelism_text(const Parallelism& parallel);

// Writes `report`, its page and `files` (name, text) to --report-dir, all or none; nothing without one.
// Returns the page's path.
std::optional<std::string> write_pipeline_report(
    const PipelineArgs& args, const Json& report,
    const std::vector<std::pair<std::string, std::string>>& files = {});

// The text that the build embeds.
std::string_view pipeline_template();

}  // namespace tpsim::launch
