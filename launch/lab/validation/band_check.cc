// What validated loads say of error bands.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/error_bands/error_band.h"
#include "launch/lab/validation/validation_report.h"
#include "proto/base/hash.h"

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

// As server_of(), but short: flags are told apart, not written.
std::string server_name(const proto::ValidatedRow& row) {
  if (row.has_server()) return row.server();
  ByteHash settings;
  settings.add(row.settings());
  return fmt::format("{} {} {} {:08x}", row.traits().model(), row.traits().hardware(), row.traits().gpus(),
                     static_cast<std::uint32_t>(settings.value()));
}

Residual residual_of(const proto::ValidatedRow& row) {
  Residual out;
  out.traits = row.traits();
  out.load = row.load();
  out.server = server_name(row);
  if (row.has_ttft_ms()) out.ratio[0] = measured_ratio(row.ttft_ms());
  if (row.has_tpot_ms()) out.ratio[1] = measured_ratio(row.tpot_ms());
  // Of pipelines: a forward, or all of a step; and end to end.
  if (row.has_ms()) out.ratio[1] = measured_ratio(row.ms());
  if (row.has_seconds()) out.ratio[row.load_kind() == "end to end" ? 2 : 1] = measured_ratio(row.seconds());
  if (row.has_e2e_ms()) {
    out.ratio[2] = measured_ratio(row.e2e_ms());
  } else if (row.has_ttft_ms() && row.has_tpot_ms()) {
    const double later = out.traits.output_tokens() - 1;
    out.ratio[2] = (row.ttft_ms().measured() + later * row.tpot_ms().measured()) /
                   (row.ttft_ms().predicted() + later * row.tpot_ms().predicted());
  }
  if (row.has_duration_s()) {
    out.ratio[3] = measured_ratio(row.duration_s());
  } else if (out.traits.arrivals() == "closed") {
    out.ratio[3] = out.ratio[2];  // so many at a time: the load takes as long as its requests
  }
  return out;
}

struct Count {
  std::uint64_t all = 0, inside = 0;
  std::vector<double> widths;

  void add(double measured, const Band& band) {
    ++all;
    inside += measured >= band.low && measured <= band.high ? 1 : 0;
    widths.push_back(band.high / band.low - 1);
  }
  void write(Figure figure, const std::string& like, proto::Validation& validation) {
    if (all == 0) return;
    proto::BandCoverage& out = *validation.add_bands();
    out.set_figure(std::string(kFigureNames[static_cast<std::size_t>(figure)]));
    out.set_like(like);
    out.set_asked(kCoverage);
    out.set_count(all);
    out.set_inside(inside);
    out.set_width(upper_quantile(widths, 0.5));
  }
};

// By today's answers: of the catalogue's loads but those of the row's server, or of its family, or on its
// GPU.
void check_answers(const ResidualTable& table, Figure figure, proto::Validation& validation) {
  Count answered, other_families, other_gpus;
  for (const Residual& row : table.rows) {
    const double measured = row.of(figure);
    if (measured <= 0) continue;
    const auto add = [&](Count& count, const LeftOut& left_out) {
      if (const auto band = error_band(catalogue_residuals(), figure, row.traits, false, left_out))
        count.add(measured, *band);
    };
    add(answered, {.server = row.server});
    add(other_families, {.server = row.server, .family = row.traits.family()});
    add(other_gpus, {.server = row.server, .hardware = row.traits.hardware()});
  }
  answered.write(figure, "answered", validation);
  other_families.write(figure, "without its family", validation);
  other_gpus.write(figure, "without its GPU", validation);
}

}  // namespace

void add_answered_bands(bool carried_over, proto::ValidatedRow& row) {
  const std::string server = server_name(row);
  const auto band = [&](Figure figure) {
    return error_band(catalogue_residuals(), figure, row.traits(), carried_over, {.server = server});
  };
  const auto write = [](const std::optional<Band>& of, proto::MeasuredFigure* figure) {
    if (!of) return;
    figure->set_low(figure->predicted() * of->low);
    figure->set_high(figure->predicted() * of->high);
  };
  if (row.has_ttft_ms()) write(band(Figure::kTtft), row.mutable_ttft_ms());
  if (row.has_tpot_ms()) write(band(Figure::kTpot), row.mutable_tpot_ms());
  if (row.has_e2e_ms()) write(band(Figure::kLatency), row.mutable_e2e_ms());
  if (row.has_duration_s()) write(band(Figure::kDuration), row.mutable_duration_s());
  if (!row.has_output_throughput()) return;
  std::optional<Band> tokens = band(Figure::kDuration);  // the other way round
  if (tokens) std::tie(tokens->low, tokens->high) = std::pair(1 / tokens->high, 1 / tokens->low);
  write(tokens, row.mutable_output_throughput());
}

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
    const auto figure = static_cast<Figure>(f);
    std::map<std::size_t, Count> counts;  // by level; kNumLevels: all of them
    for (const Residual& row : table.rows) {
      if (row.ratio[f] <= 0) continue;
      const auto band = error_band(table, figure, row.traits, false, {.server = row.server});
      if (!band) continue;
      for (const std::size_t level : {static_cast<std::size_t>(band->like), kNumLevels})
        counts[level].add(row.ratio[f], *band);
    }
    for (auto& [level, count] : counts)
      count.write(figure, level == kNumLevels ? "all" : std::string(to_string(static_cast<Likeness>(level))),
                  validation);
    check_answers(table, figure, validation);
  }
}

}  // namespace tpsim::launch
