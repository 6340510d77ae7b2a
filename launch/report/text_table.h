// Figures and aligned columns, for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpsim::launch {

// Three or more digits of a figure: 12345, 123.4, 1.23.
std::string format_figure(double value);

// Adds cells to the end of a row.
inline void append(std::vector<std::string>& row, const std::vector<std::string>& cells) {
  row.insert(row.end(), cells.begin(), cells.end());
}

struct TextTable {
  std::vector<std::vector<std::string>> rows = {};  // the first is the head
  std::size_t left_columns = 1;                     // aligned to the left, the others to the right
  int width = 0;                                    // of the terminal; 0: any
  // Titles of columns that go where the table is wider, in this order, of two alike the last; a line behind
  // the table names them.
  std::vector<std::string> less_wanted = {};
};
// One line a row. `colour`: ANSI, the head dim and rows that begin with a star bold.
std::string to_text(TextTable table, bool colour);

}  // namespace tpsim::launch
