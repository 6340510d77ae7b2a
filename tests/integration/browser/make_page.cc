// Writes a report page to FILE.  usage: make_page comparison|sweep|single FILE
#include <fstream>
#include <string>

#include "launch/report/html_page.h"
#include "tests/unit/report/sample_report.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string kind = argv[1];
  std::ofstream page(argv[2], std::ios::binary);
  if (kind == "sweep") {
    page << tpsim::launch::html_page(tpsim::launch::page_data(tpsim::launch::sample_sweep(), {}));
  } else {
    tpsim::proto::ComparisonReport report = tpsim::launch::sample_comparison();
    if (kind == "single") report.mutable_runs()->DeleteSubrange(1, 2);
    const std::size_t runs = static_cast<std::size_t>(report.runs_size());
    page << tpsim::launch::html_page(report, std::vector(runs, tpsim::launch::sample_steps()));
  }
  return page ? 0 : 1;
}
