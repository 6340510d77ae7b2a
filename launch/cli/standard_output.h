// Standard output, of which every command makes sure that it took what was printed.
#pragma once

#include <exception>
#include <string_view>

namespace tpsim::launch {

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
