// The one kind of error that tpsim shows to its user.
//
// A UserError carries a complete sentence: which flag, or which file and line, is wrong, what is wrong
// with it, and what would be accepted. `tpsim` prints it to standard error and exits with status 2.
// Anything else that escapes is a defect of tpsim.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tpsim {

class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& sentence);
  ~UserError() override;
};

// Throws UserError with a fmt-formatted sentence.
template <typename... Args>
[[noreturn]] void throw_user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

// Text from a file, for a sentence: in quotes, cut to `shown` bytes, with everything that is not printable
// ASCII as \xNN.
std::string in_quotes(std::string_view text, std::size_t shown = 40);

// `sentence` on one line of a terminal: control characters, which may stand in a name that the user gave, as
// \xNN.
std::string printable(std::string_view sentence);

}  // namespace tpsim
