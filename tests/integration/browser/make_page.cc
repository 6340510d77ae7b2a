// Writes the HTML page of a small comparison to the file that is named.
#include <fstream>

#include "launch/report/html_page.h"
#include "tests/unit/report/sample_report.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ofstream(argv[1], std::ios::binary) << tpsim::launch::html_page(tpsim::launch::sample_comparison());
  return 0;
}
