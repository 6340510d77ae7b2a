// Routes of SGLang 0.5.12 that a simulation has nothing to answer with.
#pragma once

#include <optional>
#include <string_view>

namespace tpsim::launch {

struct RefusedRoute {
  std::string_view path;  // as counted; of a prefix, what all of its paths begin with
  std::string_view why;   // a sentence: what is missing here and what would do
};

// The one that `path` is, or none: of no such route SGLang knows either.
std::optional<RefusedRoute> find_refused_route(std::string_view path);

}  // namespace tpsim::launch
