#include "launch/image_host.h"

#include "rank/model/image_layout.h"

namespace tpsim::launch {
namespace {

constexpr double kFreshPages =
    32.0 * 1024 * 1024;  // the most that glibc's malloc gives again (M_MMAP_THRESHOLD)

// Seconds a byte of a tensor of `bytes`.
struct PerByte {
  double reused, fresh;
  double of(double bytes) const { return bytes * (bytes > kFreshPages ? fresh : reused); }
};

// The processor's call, its result copied from the GPU; each image into shared memory.
constexpr double kProcess = 8.5e-3, kShare = 5.5e-3, kShareByte = 0.33e-9;
constexpr PerByte kProcessByte = {.reused = 0.25e-9, .fresh = 0.85e-9};
// In the scheduler: out of shared memory, and SHA-256.
constexpr PerByte kReceiveByte = {.reused = 0.4e-9, .fresh = 0.59e-9};
constexpr double kReceive = 0.4e-3, kHashByte = 0.73e-9;
// InternVL: decoded by the CPU; pickled and read again.
constexpr double kTile = 7e-3, kDecodePixel = 15e-9;
constexpr PerByte kPickleByte = {.reused = 1.1e-9, .fresh = 2.5e-9};
constexpr PerByte kUnpickleByte = {.reused = 1.1e-9, .fresh = 2.9e-9};

// What an image's tensor takes: 32-bit pixels, of InternVL 16-bit.
double feature_bytes(const rank::VisionConfig& vision, const rank::ImageLayout& layout) {
  constexpr double kChannels = 3;
  if (vision.rule == rank::ImageRule::kSmartResize)
    return 4 * kChannels * vision.temporal_patch * vision.patch_size * vision.patch_size * layout.patches;
  const double side = vision.image_size;
  return (vision.rule == rank::ImageRule::kClosestRatio ? 2 : 4) * kChannels * side * side * layout.tiles;
}

}  // namespace

ImageHost image_host(const rank::VisionConfig& vision, std::span<const scheduler::ImageInput> images) {
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
    host.prepare_seconds += kShare + kShareByte * one;
    host.receive_seconds += kReceive + kReceiveByte.of(one) + kHashByte * one;
  }
  if (pickled) {
    host.prepare_seconds += kTile + kDecodePixel * pixels + count * kPickleByte.of(bytes);
    host.receive_seconds += count * kUnpickleByte.of(bytes);
  } else {
    host.prepare_seconds += kProcess + kProcessByte.of(bytes);
  }
  return host;
}

}  // namespace tpsim::launch
