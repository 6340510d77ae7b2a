// What `tpsim calibrate` prints and writes.
#pragma once

#include <string>
#include <vector>

#include "launch/lab/calibrate/kernel_fits.h"
#include "launch/lab/calibrate/serving_fit.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

// Which classes tables of kernels were fitted to.
std::string kernel_report(const std::vector<KernelFit>& fits, bool colour);
// Which coefficients were fitted, which were not and why, and the errors of rows held out.
std::string fit_report(const ServingRows& rows, const ServingFit& fit, bool colour);

// A hardware profile as the JSON text that --hardware takes: every number to its last bit, lists of numbers
// on one line.
std::string profile_text(const proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
