// Loops over integers that run in the widest vectors of the machine they run on, where the compiler may
// assume none but those of every processor. For loops of integers only: others might round differently on
// another machine.
#pragma once

namespace tpsim {

#if defined(__x86_64__) && defined(__GNUC__)

namespace widest_vectors_detail {

template <typename Loop>
[[gnu::target("avx2")]] auto in_avx2(Loop loop) {  // a copy: what it writes does not change what it knows
  return loop();
}

inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

}  // namespace widest_vectors_detail

// Returns what loop() does. REQUIRES: it is a lambda with TPSIM_LOOP after its parameters, and calls nothing
// that is not inlined.
#define TPSIM_LOOP __attribute__((always_inline))
template <typename Loop>
auto in_widest_vectors(Loop loop) {
  return widest_vectors_detail::has_avx2() ? widest_vectors_detail::in_avx2(loop) : loop();
}

#else

#define TPSIM_LOOP
template <typename Loop>
auto in_widest_vectors(const Loop& loop) {
  return loop();
}

#endif

}  // namespace tpsim
