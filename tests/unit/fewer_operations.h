// Of random tests, which the release build runs in full, the sanitizers' builds run some.
#pragma once

namespace tpsim {

#ifdef TPSIM_FEWER_OPERATIONS
inline constexpr bool kFewerOperations = true;
#else
inline constexpr bool kFewerOperations = false;
#endif

}  // namespace tpsim
