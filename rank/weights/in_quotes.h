// Text from files in error messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::rank {

// In quotes, cut to some 120 bytes, with everything that is not printable ASCII as \xNN.
std::string in_quotes(std::string_view text);

// "[2, 3]"; more than eight dimensions are cut.
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace tpsim::rank
