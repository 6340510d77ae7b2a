// How the runs of a comparison are called, and told from each other.
#pragma once

#include <string>
#include <string_view>

#include "proto/report.pb.h"

namespace tpsim::launch {

// The axis of a sweep that --attention-backends makes.
inline constexpr std::string_view kBackendAxis = "attention_backends";

using Settings = google::protobuf::Map<std::string, std::string>;

// "--page-size" of the axis "page_size".
std::string flag_of(const proto::SweepAxis& axis);
// The values of `settings` with their flags, in the order of the sweep's axes.
std::string setting_name(const proto::ComparisonReport& report, const Settings& settings);
// How `run` is called among the others: its backend or, of a sweep, what varies:
// "triton, --tp-size 8, --page-size 64".
std::string run_name(const proto::ComparisonReport& report, const proto::RunReport& run);
bool same(const Settings& a, const Settings& b);
bool is_best(const proto::ComparisonReport& report, const proto::RunReport& run);

}  // namespace tpsim::launch
