// Writes a report page to FILE.  usage: make_page comparison|sweep|single|validation FILE
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "launch/lab/validation/validation_report.h"
#include "launch/report/html_page.h"
#include "tests/unit/launch/report/sample_report.h"

namespace {

// Rows of two servers, one of them batch by batch, and what could not be asked.
tpsim::proto::Validation sample_validation() {
  std::vector<tpsim::proto::ValidatedRow> rows;
  for (int i = 0; i < 12; ++i) {
    tpsim::proto::ValidatedRow& row = rows.emplace_back();
    row.set_server(i % 2 == 0 ? "llama-3.1-8b-tp1-fa3" : "llama-3.1-8b-tp1-triton");
    row.set_load("closed:1024:256:" + std::to_string(1 + i / 2) + ":48");
    row.set_model("llama-3.1-8b");
    row.set_hardware("h200-sxm");
    row.set_backend(i % 2 == 0 ? "fa3" : "triton");
    row.set_tp(1);
    row.set_load_kind("closed");
    const double off = 1 + 0.02 * (i - 6);
    for (auto* figure :
         {row.mutable_tpot_ms(), row.mutable_ttft_ms(), row.mutable_e2e_ms(), row.mutable_duration_s()}) {
      figure->set_measured(5 + 3 * i);
      figure->set_predicted(off * (5 + 3 * i));
    }
    if (i == 11)
      row.set_refusal("--tp 3 does not divide the 32 attention heads of llama-3.1-8b; use 1, 2, 4");
    if (i != 2) continue;
    for (auto* timeline : {row.mutable_measured_timeline(), row.mutable_predicted_timeline()}) {
      for (int k = 1; k <= 300; ++k) {
        timeline->add_time(0.005 * k);
        timeline->add_step_ms(k % 50 == 0 ? 90 : 5);
        timeline->add_running(static_cast<std::uint32_t>(1 + k / 20));
      }
    }
    tpsim::proto::StepComparison& steps = *row.add_steps();
    steps.set_mode("decode");
    for (int k = 0; k < 300; ++k) steps.add_ratios(0.95 + 0.0005 * k);
    row.mutable_pool_tokens()->set_measured(906051);
    row.mutable_pool_tokens()->set_predicted(906527);
  }
  return tpsim::launch::make_validation(std::move(rows));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string kind = argv[1];
  std::ofstream page(argv[2], std::ios::binary);
  if (kind == "validation") {
    page << tpsim::launch::validation_page(sample_validation());
  } else if (kind == "sweep") {
    page << tpsim::launch::html_page(tpsim::launch::page_data(tpsim::launch::sample_sweep(), {}));
  } else {
    tpsim::proto::ComparisonReport report = tpsim::launch::sample_comparison();
    if (kind == "single") report.mutable_runs()->DeleteSubrange(1, 2);
    const std::size_t runs = static_cast<std::size_t>(report.runs_size());
    page << tpsim::launch::html_page(tpsim::launch::page_data(
        tpsim::launch::to_json(report), std::vector(runs, tpsim::launch::sample_steps())));
  }
  return page ? 0 : 1;
}
