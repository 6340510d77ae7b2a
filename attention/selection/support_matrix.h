// SGLang's two support matrices as its documentation prints them, cell for cell, made of the backends' own
// rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpsim::attention {

struct SupportMatrix {
  std::string_view title;            // "MHA Backends"
  std::vector<std::string> columns;  // "Backend", "FP8 KV Cache" …
  struct Line {
    std::string_view backend;        // as --attention-backend spells it
    std::vector<std::string> cells;  // one for each column
  };
  std::vector<Line> lines;  // in the documentation's order
};
SupportMatrix mha_matrix();
SupportMatrix mla_matrix();

}  // namespace tpsim::attention
