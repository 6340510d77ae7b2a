// The images of one JSON object, as traces and prompt files have them:
//
//   images          [[width, height], …] in pixels
//   image_ids       a number below 2^63 for each, equal for equal images; without it no two are equal
//   image_positions prompt tokens in front of each, ascending; without it all come first
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/workload/json_record.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Where a record has these keys.
struct ImageFields {
  std::size_t images = 0, ids = 0, positions = 0;
};
// Contents of images without a name are counted from here on.
inline constexpr std::uint64_t kUnnamedImages = std::uint64_t{1} << 63;
// `unnamed`: the content of the next image without a name. Throws UserError.
std::vector<ImageInput> read_images(const JsonRecord& record, const ImageFields& fields, const Place& place,
                                    std::uint64_t& unnamed);

}  // namespace tpsim::scheduler
