#include "launch/lab/validation/row_groups.h"

#include <fmt/format.h>

namespace tpsim::launch {
namespace {

using Row = proto::ValidatedRow;
using Group = proto::ValidationGroup;

constexpr RowGrouping kGroupings[] = {
    {"all", [](const Row&) { return std::string("all"); }},
    {"model", [](const Row& row) { return row.model(); }},
    {"hardware", [](const Row& row) { return row.hardware(); }},
    {"backend", [](const Row& row) { return row.backend(); }},
    {"tp", [](const Row& row) { return std::to_string(row.tp()); }},
    {"load_kind", [](const Row& row) { return row.load_kind(); }},
    {"settings", [](const Row& row) { return row.settings(); }},
    {"server", [](const Row& row) { return row.server(); }},
};

constexpr RowFigure kFigures[] = {
    {&Row::has_tpot_ms, &Row::tpot_ms, &Row::mutable_tpot_ms, &Group::has_tpot_ms, &Group::tpot_ms,
     &Group::mutable_tpot_ms, "tpot_ms", "TPOT", &MeasuredFigures::tpot_ms},
    {&Row::has_ttft_ms, &Row::ttft_ms, &Row::mutable_ttft_ms, &Group::has_ttft_ms, &Group::ttft_ms,
     &Group::mutable_ttft_ms, "ttft_ms", "TTFT", &MeasuredFigures::ttft_ms},
    {&Row::has_e2e_ms, &Row::e2e_ms, &Row::mutable_e2e_ms, &Group::has_e2e_ms, &Group::e2e_ms,
     &Group::mutable_e2e_ms, "e2e_ms", "latency", &MeasuredFigures::e2e_ms},
    {&Row::has_duration_s, &Row::duration_s, &Row::mutable_duration_s, &Group::has_duration_s,
     &Group::duration_s, &Group::mutable_duration_s, "duration_s", "duration", &MeasuredFigures::duration_s},
    {&Row::has_output_throughput, &Row::output_throughput, &Row::mutable_output_throughput,
     &Group::has_output_throughput, &Group::output_throughput, &Group::mutable_output_throughput,
     "output_throughput", "output tok/s", &MeasuredFigures::output_throughput},
};

}  // namespace

std::span<const RowGrouping> row_groupings() { return kGroupings; }

std::string server_of(const Row& row) {
  if (row.has_server()) return row.server();
  return fmt::format("{} {} {} {}", row.traits().model(), row.settings(), row.traits().hardware(),
                     row.traits().gpus());
}

std::span<const RowFigure> row_figures() { return kFigures; }

}  // namespace tpsim::launch
