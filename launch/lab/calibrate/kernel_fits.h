// What tables of measured kernels say of a profile's operator classes.
//
// A class is fitted by fit_operators.h, attention_fit.h, mla_bmm_fit.h or sparse_fit.h, which
// leave rows out; it is taken where those are predicted better than before.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "launch/lab/calibrate/kernel_tables.h"
#include "launch/lab/calibrate/surface_fit.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

struct KernelFit {
  std::string operator_class;
  std::string table;
  ClassFit fit;
  std::string reason;  // why the class was left as it was; empty: it was fitted
};

// Fits every class that the tables have rows of, into `profile`. `on_class` is called before each. Throws
// UserError for a malformed table.
std::vector<KernelFit> fit_kernels(const std::vector<KernelTableFile>& tables,
                                   const std::function<void()>& on_class, proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
