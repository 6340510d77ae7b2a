// Fits the coefficients of attention/sparse_cost.h to measured modules of DeepSeek sparse attention, classes
// "attention.nsa.KERNEL.extend", ".decode" and "attention.nsa.indexer.extend", ".decode".
//
// A row is a whole attention module, so the fit has coefficients of its own for what surrounds the attention:
// matrix products by roofline, and a fixed rest; a prefill, which runs eager, takes as long as the slower of
// that and the host, whose time is that of the smallest prefills of one server and length of its caches.
// Passed over are prefills of "skip_indexer" rows, whose selection was made up, and whose times jump with it,
// those of more stored tokens than a GPU's KV pool holds, and decodes of more requests than graphs were
// captured for, which take the host's time. One row in five, by a hash of its shape, is left out of the fit;
// errors are of those of these rows that take longer than the host.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

// Of one kind of matrix products (bf16 or fp8 blocks) around the attention.
struct SurroundingProducts {
  double compute = 0.6, memory = 0.6;  // of the peaks
  double rest = 2e-5, per_row = 1e-8;  // seconds of all else, and for each new token
};

struct SparseFit {
  struct Class : ClassFit {  // errors: of the modules left out that have it
    std::string name;        // of the kernel, or "indexer"
  };
  std::vector<Class> classes;  // the indexer last
  struct Priced {
    kernels::SparseRow row;
    double seconds = 0, formula_seconds = 0;  // the second without corrections
    bool hosts = false;                       // of the host's time; then it is one of those left out
  };
  std::vector<Priced> priced;  // rows of the fit and rows left out
  std::size_t rows = 0;        // of the fit
  std::size_t passed_over = 0, of_the_host = 0;
  SurroundingProducts bf16, fp8;
};

// `rows`: kernels::sparse_rows() of one GPU and phase; of more than `most` every so many-th is fitted.
// `classes` is empty where no row is left to fit.
SparseFit fit_sparse(const proto::HardwareProfile& profile, bool decode, std::vector<kernels::SparseRow> rows,
                     std::size_t most = 4000);

}  // namespace tpsim::calibrate
