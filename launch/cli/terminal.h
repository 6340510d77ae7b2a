// What is shown depends on whether somebody looks at it.
#pragma once

namespace tpsim::launch {

// Columns of the terminal that shows `descriptor` (STDOUT_FILENO or STDERR_FILENO); 0 where it goes to a
// file, a pipe, or a terminal that cannot move its cursor (TERM=dumb or none). mpirun gives its processes a
// pseudo-terminal for their output wherever that goes in the end: there, the descriptor of mpirun counts.
int terminal_columns(int descriptor);

// Whether ANSI colours are wanted on `descriptor`: on a terminal, unless NO_COLOR (https://no-color.org) is
// set to something.
bool shows_colours(int descriptor);

}  // namespace tpsim::launch
