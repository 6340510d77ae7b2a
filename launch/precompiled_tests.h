// As precompiled.h, for the tests: what an assertion says of two values, and how a value is printed.
#ifndef TPSIM_TEMPLATE
#define TPSIM_TEMPLATE extern template
#endif

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace testing {

namespace internal {
TPSIM_TEMPLATE AssertionResult CmpHelperOpFailure(const char*, const char*, const double&, const double&,
                                                  const char*);
TPSIM_TEMPLATE AssertionResult CmpHelperOpFailure(const char*, const char*, const double&, const int&,
                                                  const char*);
TPSIM_TEMPLATE AssertionResult CmpHelperOpFailure(const char*, const char*, const int&, const int&,
                                                  const char*);
TPSIM_TEMPLATE AssertionResult CmpHelperOpFailure(const char*, const char*, const std::uint32_t&,
                                                  const std::uint32_t&, const char*);
TPSIM_TEMPLATE AssertionResult CmpHelperOpFailure(const char*, const char*, const std::uint64_t&,
                                                  const std::uint32_t&, const char*);
TPSIM_TEMPLATE AssertionResult CmpHelperOpFailure(const char*, const char*, const std::uint64_t&,
                                                  const std::uint64_t&, const char*);
TPSIM_TEMPLATE AssertionResult CmpHelperFloatingPointEQ<double>(const char*, const char*, double, double);
}  // namespace internal

TPSIM_TEMPLATE std::string PrintToString(const bool&);
TPSIM_TEMPLATE std::string PrintToString(const int&);
TPSIM_TEMPLATE std::string PrintToString(const std::uint32_t&);
TPSIM_TEMPLATE std::string PrintToString(const std::uint64_t&);
TPSIM_TEMPLATE std::string PrintToString(const double&);
TPSIM_TEMPLATE std::string PrintToString<const char*>(const char* const&);
TPSIM_TEMPLATE std::string PrintToString(const std::string&);
TPSIM_TEMPLATE std::string PrintToString(const std::vector<std::string>&);
TPSIM_TEMPLATE std::string PrintToString(const std::vector<std::uint32_t>&);

}  // namespace testing
