#include "launch/lab/measurements/published_generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "launch/lab/measurements/csv_rows.h"
#include "launch/lab/measurements/measurement_formats.h"
#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

constexpr std::size_t kLongestCell = 2000;  // of a cell: it is words, which expressions are matched with

using Text = std::string PublishedGeneration::*;
constexpr std::array<std::pair<std::string_view, Text>, 19> kTexts = {{
    {"id", &PublishedGeneration::id},
    {"source", &PublishedGeneration::source},
    {"where", &PublishedGeneration::where},
    {"model", &PublishedGeneration::model},
    {"resolution", &PublishedGeneration::resolution},
    {"frames", &PublishedGeneration::frames},
    {"steps", &PublishedGeneration::steps},
    {"guidance", &PublishedGeneration::guidance},
    {"dtype", &PublishedGeneration::dtype},
    {"gpu", &PublishedGeneration::gpu},
    {"parallel", &PublishedGeneration::parallel},
    {"attn_backend", &PublishedGeneration::backend},
    {"attn_params", &PublishedGeneration::backend_settings},
    {"caching", &PublishedGeneration::caching},
    {"compile", &PublishedGeneration::compile},
    {"timed", &PublishedGeneration::timed},
    {"value_other", &PublishedGeneration::value_other},
    {"baseline", &PublishedGeneration::baseline},
    {"notes", &PublishedGeneration::notes},
}};

// A ratio, or a range of them ("1.24-1.98"), which is none to compare with.
std::optional<double> ratio(const CsvRows& cells, std::string_view column) {
  const std::string text = cells.text(column);
  const std::size_t dash = text.find('-');
  const bool range = dash != std::string::npos && dash > 0 && text[dash - 1] != 'e';
  return text.empty() || range ? std::nullopt : std::optional(cells.time(column));
}

PublishedGeneration row_of(const CsvRows& cells) {
  PublishedGeneration row;
  const scheduler::Place place = cells.place();
  row.file = fmt::format("{}:{}", place.name, place.line);
  for (const auto& [column, text] : kTexts) {
    row.*text = cells.text(column);
    if ((row.*text).size() > kLongestCell)
      place.fail("{} is longer than {} characters", column, kLongestCell);
    if (!std::ranges::all_of(row.*text, [](char c) { return c >= ' ' && c <= '~'; }))
      place.fail("{} must be printable ASCII", column);
  }
  if (row.id.empty()) place.fail("id must have a name");
  if (row.timed.empty()) place.fail("timed must say what was timed, for example end to end");
  row.num_gpus = cells.gpus("n_gpu");
  row.seconds = cells.optional_time("seconds");
  row.peak_gib = cells.optional_time("peak_mem_gb");
  row.speedup = ratio(cells, "speedup");
  row.solid = cells.text("solid") == "yes";
  return row;
}

}  // namespace

bool holds_published_generations(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // refused, or read once, by others
  scheduler::TraceInput input = open_input(path);
  std::string_view line;
  return input.next_filled_line(line) && line.find("attn_backend") != std::string_view::npos &&
         line.find("timed") != std::string_view::npos;
}

std::vector<PublishedGeneration> read_published_generations(scheduler::TraceInput& input) {
  CsvRows cells(input, "id model gpu timed resolution attn_backend",
                "source where frames steps guidance dtype n_gpu parallel attn_params caching compile seconds "
                "value_other peak_mem_gb speedup baseline solid notes");
  std::vector<PublishedGeneration> rows;
  while (cells.next()) rows.push_back(row_of(cells));
  if (rows.empty()) input.place().fail("no row follows the header; a row is a published figure");
  return rows;
}

}  // namespace tpsim::launch
