// What is shown depends on whether somebody looks at it; every command makes sure that standard output took
// what was printed.
#pragma once

#include <exception>
#include <string_view>

namespace tpsim::launch {

// Columns of the terminal that shows `descriptor` (STDOUT_FILENO or STDERR_FILENO); 0 where it goes to a
// file, a pipe, or a terminal that cannot move its cursor (TERM=dumb or none). mpirun gives its processes a
// pseudo-terminal for their output wherever that goes in the end: there, the descriptor of mpirun counts.
int terminal_columns(int descriptor);

// Whether ANSI colours are wanted on `descriptor`: on a terminal, unless NO_COLOR (https://no-color.org) is
// set to something.
bool shows_colours(int descriptor);

// The reader of standard output has gone (`tpsim ... | head`): nobody is left to tell.
class OutputClosed : public std::exception {};

// Before anything else: a standard descriptor that the parent closed must not become some file that is opened
// later, and writing after a pipe's end or a file size limit is an error instead of the end of the process.
void guard_standard_descriptors();

// Prints `text`; it may stay buffered until flush_output(). Throws as flush_output().
void print(std::string_view text);

// Hands on what was printed. Throws OutputClosed, or UserError where it cannot be written (a full disk, a
// closed descriptor).
void flush_output();

}  // namespace tpsim::launch
