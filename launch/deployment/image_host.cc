#include "launch/deployment/image_host.h"

#include "rank/config/image_layout.h"

namespace tpsim::launch {
namespace {

constexpr double kFreshPages =
    32.0 * 1024 * 1024;  // the most that glibc's malloc gives again (M_MMAP_THRESHOLD)

double seconds_of(const proto::HostProfile::PerByte& each, double bytes) {
  return bytes * (bytes > kFreshPages ? each.fresh() : each.reused());
}

// What an image's tensor takes: 32-bit pixels, of InternVL 16-bit.
double feature_bytes(const rank::VisionConfig& vision, const rank::ImageLayout& layout) {
  constexpr double kChannels = 3;
  if (vision.rule == rank::ImageRule::kSmartResize)
    return 4 * kChannels * vision.temporal_patch * vision.patch_size * vision.patch_size * layout.patches;
  const double side = vision.image_size;
  return (vision.rule == rank::ImageRule::kClosestRatio ? 2 : 4) * kChannels * side * side * layout.tiles;
}

}  // namespace

ImageHost image_host(const rank::VisionConfig& vision, const proto::HostProfile::Images& constants,
                     std::span<const scheduler::ImageInput> images) {
  ImageHost host;
  if (images.empty()) return host;
  const bool pickled = vision.rule == rank::ImageRule::kClosestRatio;
  const auto count = static_cast<double>(images.size());
  double bytes = 0, pixels = 0;
  for (const scheduler::ImageInput& image : images) {
    const double one = feature_bytes(vision, rank::image_layout(vision, image.width, image.height));
    bytes += one;
    pixels += double(image.width) * image.height;
    if (pickled) continue;
    host.prepare_seconds += constants.share_seconds() + constants.share_byte_seconds() * one;
    host.receive_seconds += constants.receive_seconds() + seconds_of(constants.receive_byte_seconds(), one) +
                            constants.hash_byte_seconds() * one;
  }
  if (pickled) {
    host.prepare_seconds += constants.tile_seconds() + constants.decode_pixel_seconds() * pixels +
                            count * seconds_of(constants.pickle_byte_seconds(), bytes);
    host.receive_seconds += count * seconds_of(constants.unpickle_byte_seconds(), bytes);
  } else {
    host.prepare_seconds += constants.process_seconds() + seconds_of(constants.process_byte_seconds(), bytes);
  }
  return host;
}

}  // namespace tpsim::launch
