// Prints what a live server hands out.  usage: make_live page|data|metrics
#include <cstdio>
#include <string>

#include "launch/serve/page/live_page.h"
#include "launch/serve/page/prometheus_text.h"
#include "tests/unit/launch/serve/live_page/sample_statistics.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string what = argv[1];
  const tpsim::launch::LiveStatistics statistics = tpsim::launch::sample_statistics();
  const std::string text = what == "page"   ? tpsim::launch::live_page()
                           : what == "data" ? tpsim::launch::live_page_data(statistics)
                                            : tpsim::launch::prometheus_text(statistics);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}
