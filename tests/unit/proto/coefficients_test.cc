// The table of coefficients: each name stands for one member, and what is read is what was written.
#include "proto/coefficients.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tpsim {
namespace {

template <typename Coefficients>
class CoefficientTable : public ::testing::Test {};

template <typename Coefficients>
constexpr const char* kClass = nullptr;
template <>
constexpr const char* kClass<PlanCoefficients> = "attention.mine.decode";
template <>
constexpr const char* kClass<IndexCoefficients> = "attention.mine.indexer.decode";
template <>
constexpr const char* kClass<OperatorCoefficients> = "gemm.mine";

using Structs = ::testing::Types<PlanCoefficients, IndexCoefficients, OperatorCoefficients>;
TYPED_TEST_SUITE(CoefficientTable, Structs);

TYPED_TEST(CoefficientTable, EveryParameterIsAMemberOfItsOwn) {
  const auto names = parameter_names(kClass<TypeParam>);
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  // No member without a name: the rest are the three that OperatorEfficiency has fields for.
  EXPECT_EQ(sizeof(TypeParam), (names.size() + 3) * sizeof(double));
  proto::HardwareProfile profile;
  proto::OperatorEfficiency& entry = *profile.add_efficiencies();
  entry.set_operator_class(kClass<TypeParam>);
  entry.set_compute(0.25);
  entry.set_memory(0.125);
  entry.set_fixed_seconds(0.0625);
  double value = 100;
  for (const std::string_view name : names) (*entry.mutable_parameters())[std::string(name)] = ++value;
  proto::OperatorEfficiency written;
  written.set_operator_class(kClass<TypeParam>);
  write_coefficients(coefficients_of<TypeParam>(profile, kClass<TypeParam>), written);
  EXPECT_EQ(written.DebugString(), entry.DebugString());
}

TYPED_TEST(CoefficientTable, WhatAProfileLeavesOpenHasItsDefault) {
  proto::HardwareProfile profile;
  TypeParam mine;
  mine.memory = 0.3;
  EXPECT_EQ(coefficients_of(profile, kClass<TypeParam>, mine).memory, 0.3);
  proto::OperatorEfficiency written;
  write_coefficients(coefficients_of<TypeParam>(profile, kClass<TypeParam>), written);
  EXPECT_TRUE(written.parameters().empty());
  EXPECT_EQ(written.memory(), TypeParam().memory);
}

TEST(Efficiencies, AreFoundByTheirWholeName) {
  proto::HardwareProfile profile;
  for (const char* name : {"gemm", "gemm.fp8"}) profile.add_efficiencies()->set_operator_class(name);
  EXPECT_EQ(find_efficiency(profile, "gemm.fp8"), &profile.efficiencies(1));
  EXPECT_EQ(find_efficiency(profile, "gemm.fp"), nullptr);
}

}  // namespace
}  // namespace tpsim
