// A launch line of SGLang as it is pasted from a shell or a web page: what stands in front of its flags.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tpsim::launch {

struct PastedLine {
  std::vector<std::string> environment;  // NAME=VALUE
  std::size_t words = 0;                 // in front of the flags; 0: the line begins with a flag, or is none
};

// `words`: what follows `tpsim run`. Variables, perhaps `docker run` with an image and its -e NAME=VALUE,
// then `python3 -m sglang.launch_server`, the same of sglang_router, `sglang serve` or `sglang generate`.
PastedLine pasted_line(std::span<char* const> words);

}  // namespace tpsim::launch
