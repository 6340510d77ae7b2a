// Measured loads as tpsim predicts them: one row a load, its figures as measured / predicted.
//
// The catalogue's table (rank/catalogue/residuals) is written by
//   tpsim validate --measurements FILE… --write-residuals rank/catalogue/residuals/serving.json
// and has to be written again whenever prices change.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/report.pb.h"

namespace tpsim::launch {

// Figures that are measured, and their names in a report. Throughput is the inverse of the duration.
enum class Figure : std::uint8_t { kTtft, kTpot, kLatency, kDuration };
inline constexpr std::size_t kNumFigures = 4;
inline constexpr std::array<std::string_view, kNumFigures> kFigureNames = {"mean_ttft_ms", "mean_tpot_ms",
                                                                           "mean_e2e_latency_ms", "duration"};
using ByFigure = std::array<double, kNumFigures>;

struct Residual {
  std::string server;  // loads of one server share its errors: its machine, its start, its kernels
  std::string load;
  proto::LoadTraits traits;
  ByFigure ratio{};  // measured / predicted; 0: not measured

  double of(Figure figure) const { return ratio[static_cast<std::size_t>(figure)]; }
};

struct ResidualTable {
  std::vector<std::string> sources;  // files of measurements
  std::vector<Residual> rows;
  // By level of likeness (error_band.h), then by figure: factors that give bands their coverage.
  std::vector<ByFigure> stretches;
};

// What a table has of a model family on a GPU.
struct Met {
  std::size_t loads = 0, servers = 0;
};
Met met(const ResidualTable& table, std::string_view hardware, std::string_view family);

// The tables of the catalogue, of servers of language models and of diffusion pipelines' generations, read
// when first asked for; empty where it has none. A generation's latency is end to end, its time a token that
// of a denoising step.
const ResidualTable& catalogue_residuals();
const ResidualTable& generation_residuals();

// As the catalogue holds it: one line a row, five digits. parse_residuals() throws std::invalid_argument for
// what is no such table.
std::string to_text(const ResidualTable& table);
ResidualTable parse_residuals(std::string_view text);

}  // namespace tpsim::launch
