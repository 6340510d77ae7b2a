// How a trace file is read.
#pragma once

#include <cstddef>
#include <string>

namespace tpsim::scheduler {

struct ReadOptions {
  std::string format = "auto";  // "auto" or one of trace_format_names()
  std::size_t num_prompts = 0;  // keep the first so many requests; 0 = all. The rest is not looked at.
  bool sort = false;            // put requests in order of arrival; false: refuse a file that is not
};

}  // namespace tpsim::scheduler
