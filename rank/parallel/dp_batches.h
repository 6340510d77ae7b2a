// The batches of data-parallel ranks in one ForwardBatch.
#pragma once

#include <cstddef>

#include "proto/base/error.h"
#include "proto/forward.pb.h"

namespace tpsim::rank {

// Throws UserError unless `batch` has one for each of `dp_size` ranks.
inline void check_dp_batches(const proto::ForwardBatch& batch, std::size_t dp_size) {
  const auto given = static_cast<std::size_t>(batch.dp_batches_size());
  if (given == (dp_size == 1 ? 0 : dp_size)) return;
  throw_user_error("batch {} is of {} data-parallel ranks, this deployment has {}", batch.sequence_number(),
                   given == 0 ? 1 : given, dp_size);
}

}  // namespace tpsim::rank
