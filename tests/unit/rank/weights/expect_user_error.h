// What a test asks of a refusal.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::testing {

// `act` throws UserError, and its sentence has each of `parts` in it.
template <typename Act>
void expect_user_error(const Act& act, const std::vector<std::string>& parts) {
  try {
    act();
    ADD_FAILURE() << "nothing was refused; expected: " << (parts.empty() ? "" : parts.back());
  } catch (const UserError& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
          << "\"" << error.what() << "\" lacks \"" << part << "\"";
    }
  }
}

}  // namespace tpsim::testing
