// Where a measurement of a generation would lie, by measured generations and passes like it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "proto/report.pb.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

// Of a generation as error bands know it: the family is the transformer's class, `in_flight` the requests
// made together, input tokens the transformer's sequence, output tokens the denoising steps.
proto::LoadTraits generation_traits(const rank::PipelineConfig& config, const rank::PipelinePlan& plan,
                                    const rank::GenerationRequest& request, const std::string& hardware);

// {"coverage": 0.8, "bands": [{"figure": "seconds", "low", "high", "like", "loads"}, …]} of `seconds` and
// `step_seconds`; null where too little was measured. Wide where much of it was never measured
// (`cost.uncalibrated`).
nlohmann::ordered_json likely_json(const proto::LoadTraits& traits, const rank::GenerationCost& cost);

// "likely 36.0 to 41.2 s if measured"; empty without a band of `figure`.
std::string likely_text(const nlohmann::ordered_json& likely, const std::string& figure);

}  // namespace tpsim::launch
