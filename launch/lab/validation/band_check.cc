// What validated loads say of error bands.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launch/error_bands/error_band.h"
#include "launch/lab/validation/validation_report.h"

namespace tpsim::launch {
namespace {

double measured_ratio(const proto::MeasuredFigure& figure) {
  return figure.predicted() > 0 ? figure.measured() / figure.predicted() : 0;
}

// "serving/requests.csv.gz" of its place.
std::string source_of(const std::string& place) {
  const std::filesystem::path path = place.substr(0, place.rfind(':'));
  return (path.parent_path().filename() / path.filename()).string();
}

Residual residual_of(const proto::ValidatedRow& row) {
  Residual out;
  out.traits = row.traits();
  out.load = row.load();
  out.server = server_of(row);
  if (row.has_ttft_ms()) out.ratio[0] = measured_ratio(row.ttft_ms());
  if (row.has_tpot_ms()) out.ratio[1] = measured_ratio(row.tpot_ms());
  if (row.has_e2e_ms()) {
    out.ratio[2] = measured_ratio(row.e2e_ms());
  } else if (row.has_ttft_ms() && row.has_tpot_ms()) {
    const double later = out.traits.output_tokens() - 1;
    out.ratio[2] = (row.ttft_ms().measured() + later * row.tpot_ms().measured()) /
                   (row.ttft_ms().predicted() + later * row.tpot_ms().predicted());
  }
  if (row.has_duration_s()) out.ratio[3] = measured_ratio(row.duration_s());
  return out;
}

}  // namespace

ResidualTable residuals_of(const proto::Validation& validation) {
  ResidualTable table;
  for (const proto::ValidatedRow& row : validation.rows()) {
    if (!row.has_traits()) continue;
    table.rows.push_back(residual_of(row));
    const std::string source = source_of(row.file());
    if (std::find(table.sources.begin(), table.sources.end(), source) == table.sources.end())
      table.sources.push_back(source);
  }
  // The digits that the file keeps decide, so that its stretches are those of its rows.
  table = parse_residuals(to_text(table));
  table.stretches = fit_stretches(table.rows);
  return table;
}

void check_bands(proto::Validation& validation) {
  const ResidualTable table = residuals_of(validation);
  for (std::size_t f = 0; f < kNumFigures; ++f) {
    struct Count {
      std::uint64_t all = 0, inside = 0;
      std::vector<double> widths;
    };
    std::map<std::size_t, Count> counts;  // by level; kNumLevels: all of them
    for (const Residual& row : table.rows) {
      const double measured = row.ratio[f];
      if (measured <= 0) continue;
      const auto band = error_band(table, static_cast<Figure>(f), row.traits, false, row.server);
      if (!band) continue;
      for (const std::size_t level : {static_cast<std::size_t>(band->like), kNumLevels}) {
        Count& count = counts[level];
        ++count.all;
        count.inside += measured >= band->low && measured <= band->high ? 1 : 0;
        count.widths.push_back(band->high / band->low - 1);
      }
    }
    for (auto& [level, count] : counts) {
      proto::BandCoverage& out = *validation.add_bands();
      out.set_figure(std::string(kFigureNames[f]));
      out.set_like(level == kNumLevels ? "all" : std::string(to_string(static_cast<Likeness>(level))));
      out.set_asked(kCoverage);
      out.set_count(count.all);
      out.set_inside(count.inside);
      out.set_width(upper_quantile(count.widths, 0.5));
    }
  }
}

}  // namespace tpsim::launch
