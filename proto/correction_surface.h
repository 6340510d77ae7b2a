// Factors on the price of a formula, interpolated over a grid of shapes: what measured kernels say where the
// formula's physics ends. Fitted by launch/lab/calibrate/surface_fit.h; beyond the grid the nearest edge's
// factor holds, so that far from all measurements the formula's own growth decides.
//
// Interpolation is linear in the factor and, along an axis, in octaves(): no logarithm of a library, whose
// last bits differ between processors, since processes compare prices bit for bit.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "proto/hardware.pb.h"

namespace tpsim {

// Position on a scale of powers of two: exponent and, between two powers, the fraction of the way. `value` >
// 0.
double octaves(double value);

// Where a value lies between the points of an axis: points[below] and the next, by `share` of the way.
struct GridPosition {
  std::size_t below = 0;
  double share = 0;
};

// Of one thread: it remembers where it looked last.
class CorrectionSurface {
 public:
  static constexpr std::size_t kMostAxes = 5;

  // `features`: names of the values that factor() is given, in their order. Throws std::invalid_argument
  // where an axis names none of them or the grid is not one.
  CorrectionSurface(const proto::CorrectionSurface& surface, std::span<const std::string_view> features);

  double factor(std::span<const double> features) const;

 private:
  struct Axis {
    std::size_t feature;         // index in features
    std::vector<double> points;  // octaves
    std::size_t stride;          // in factors_
    // Of the value looked up last: from pass to pass most are the same.
    mutable double value = 0;
    mutable GridPosition at = {};
  };
  std::vector<Axis> axes_;
  std::vector<double> factors_;
};

// Position of octaves(value) on an axis of such; clamped to its ends.
GridPosition grid_position(std::span<const double> points, double position);

// All surfaces of an operator class; none of them: 1.
class Corrections {
 public:
  Corrections() = default;
  // Empty where `entry` is null.
  Corrections(const proto::OperatorEfficiency* entry, std::span<const std::string_view> features);

  bool empty() const { return surfaces_.empty(); }
  double factor(std::span<const double> features) const {
    double product = 1;
    for (const CorrectionSurface& surface : surfaces_) product *= surface.factor(features);
    return product;
  }

 private:
  std::vector<CorrectionSurface> surfaces_;
};

}  // namespace tpsim
