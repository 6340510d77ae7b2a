// What a command of the tpsim program is to the program: what carries it out, and how it ends.
#pragma once

#include <functional>

namespace tpsim::launch {

// Carries a command out and returns the exit status.
using Action = std::function<int()>;

// What the contract of the command line promises.
inline constexpr int kDone = 0;
inline constexpr int kDisagreement = 1;  // verify: something differs from the reference
inline constexpr int kInternalError = 1;
inline constexpr int kRefused = 2;
inline constexpr int kStoppedEarly = 3;

}  // namespace tpsim::launch
