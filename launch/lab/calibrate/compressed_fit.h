// Fits what attention/backends/dsv4.cc prices to measured modules of DeepSeek V4's attention, classes
// "attention.dsv4.csa.extend", ".hca", ".indexer" and the same of decode, and of their matrix products,
// "gemm.dsv4" and "gemm.dsv4_fp8_block", which prefill and decode share. The fixed times hold everything
// small around them. Of MiniMax M3's, whose products have the classes of others:
// "attention.msa.blocks.extend",
// ".indexer.extend" and the same of decode (attention/block_sparse.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
#include "launch/lab/kernels/compressed_rows.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

struct CompressedFit : ClassFit {  // errors: of the modules left out that have it
  std::string name;                // "csa.decode", "indexer.extend", "gemm.dsv4" …
};

// `rows`: kernels::compressed_rows() or block_sparse_rows() of one GPU's tables. Empty where there are none.
std::vector<CompressedFit> fit_compressed(const proto::HardwareProfile& profile,
                                          std::vector<kernels::CompressedRow> rows);

}  // namespace tpsim::calibrate
