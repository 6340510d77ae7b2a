#include "scheduler/workload/image_fields.h"

#include "scheduler/workload/trace_reader.h"

namespace tpsim::scheduler {

std::vector<ImageInput> read_images(const JsonRecord& record, const ImageFields& fields, const Place& place,
                                    std::uint64_t& unnamed) {
  if (!record.has(fields.images)) {
    for (const std::size_t key : {fields.ids, fields.positions}) {
      if (record.has(key))
        place.fail("{} is given and images is not; give both or neither", record.name(key));
    }
    return {};
  }
  const JsonField& images = record.field(fields.images);
  const bool none = images.kind == JsonKind::kUnsigneds && images.values.empty();
  if (images.kind != JsonKind::kPairs && !none)
    place.fail("images is {}; an array of [width, height] in pixels is needed", record.found(fields.images));
  const std::size_t count = images.values.size() / 2;
  if (count > kMostImages) place.fail("the request has {} images; {} are the most", count, kMostImages);
  const auto of_each = [&](std::size_t key) -> const std::vector<std::uint64_t>* {
    if (!record.has(key)) return nullptr;
    const JsonField& field = record.field(key);
    if (field.kind != JsonKind::kUnsigneds || field.values.size() != count)
      place.fail("{} is {}; a whole number for each of the {} images is needed", record.name(key),
                 record.found(key), count);
    return &field.values;
  };
  const std::vector<std::uint64_t>* const ids = of_each(fields.ids);
  const std::vector<std::uint64_t>* const positions = of_each(fields.positions);
  std::vector<ImageInput> out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t width = images.values[2 * i];
    const std::uint64_t height = images.values[2 * i + 1];
    if (width == 0 || height == 0 || width > kMostPixels || height > kMostPixels)
      place.fail("image {} has {}x{} pixels; sides of 1 to {} are needed", i + 1, width, height, kMostPixels);
    ImageInput image;
    image.width = static_cast<std::uint32_t>(width);
    image.height = static_cast<std::uint32_t>(height);
    image.content = ids == nullptr ? unnamed++ : (*ids)[i];
    if (ids != nullptr && image.content >= kUnnamedImages)
      place.fail("image_ids has {}; ids are below 2^63", image.content);
    const std::uint64_t position = positions == nullptr ? 0 : (*positions)[i];
    if (position > kMaxRequestTokens || (i > 0 && position < out.back().position))
      place.fail("image_positions has {} for image {}; they ascend, up to {}", position, i + 1,
                 kMaxRequestTokens);
    image.position = static_cast<std::uint32_t>(position);
    out.push_back(image);
  }
  return out;
}

}  // namespace tpsim::scheduler
