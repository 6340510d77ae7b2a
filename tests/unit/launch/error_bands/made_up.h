// Residuals whose errors are known.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "launch/error_bands/error_band.h"
#include "launch/error_bands/residuals.h"

namespace tpsim::launch {

inline proto::LoadTraits made_up_traits(const std::string& hardware, const std::string& family,
                                        const std::string& backend = "fa3") {
  proto::LoadTraits traits;
  traits.set_hardware(hardware);
  traits.set_model(family + "-8b");
  traits.set_family(family);
  traits.set_weights("16bit");
  traits.set_backend(backend);
  traits.set_gpus(1);
  traits.set_arrivals("closed");
  traits.set_in_flight(16);
  traits.set_input_tokens(1024);
  traits.set_output_tokens(256);
  return traits;
}

// Standard deviations of the logarithm of a ratio: of a GPU's, a family's and a server's own share, and of a
// load's.
struct Spread {
  double gpu = 0, family = 0, server = 0, load = 0;
};

// `servers` of each backend, family and GPU, with `loads` loads each.
inline std::vector<Residual> made_up_residuals(const Spread& spread, std::uint32_t seed, int gpus = 3,
                                               int families = 2, int servers = 3, int loads = 5) {
  std::mt19937 random(seed);
  const auto draw = [&random](double deviation) {
    double sum = -6;  // of twelve uniform numbers: nearly normal
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random()) / 4294967296.0;
    return sum * deviation;
  };
  std::vector<double> of_family;
  for (int f = 0; f < families; ++f) of_family.push_back(draw(spread.family));
  std::vector<Residual> rows;
  for (int g = 0; g < gpus; ++g) {
    const double of_gpu = draw(spread.gpu);
    for (int f = 0; f < families; ++f) {
      for (const char* backend : {"fa3", "triton"}) {
        for (int s = 0; s < servers; ++s) {
          const double of_server = draw(spread.server);
          for (int l = 0; l < loads; ++l) {
            Residual row;
            row.server = fmt::format("{}-{}-{}-{}", g, f, backend, s);
            row.load = fmt::format("load {}", l);
            row.traits = made_up_traits(fmt::format("gpu{}", g), fmt::format("family{}", f), backend);
            row.ratio.fill(
                std::exp(of_gpu + of_family[static_cast<std::size_t>(f)] + of_server + draw(spread.load)));
            rows.push_back(row);
          }
        }
      }
    }
  }
  return rows;
}

inline ResidualTable made_up_table(std::vector<Residual> rows) {
  ResidualTable table;
  table.sources = {"made up"};
  table.stretches = fit_stretches(rows);
  table.rows = std::move(rows);
  return table;
}

}  // namespace tpsim::launch
