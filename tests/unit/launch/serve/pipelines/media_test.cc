#include "launch/serve/pipelines/media.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

namespace tpsim::launch::media_test {

std::uint32_t number(std::string_view file, std::size_t at, int bytes = 4) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(file[at + i]);
  return value;
}

// Pixels of a PNG of one byte each, every chunk's checksum looked at.
std::string pixels(std::string_view file, std::size_t bytes) {
  std::string packed;
  for (std::size_t at = 8; at < file.size();) {
    const std::uint32_t size = number(file, at);
    const std::string_view chunk = file.substr(at + 4, size + 4);
    EXPECT_EQ(number(file, at + 8 + size),
              crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
    if (chunk.starts_with("IDAT")) packed += chunk.substr(4);
    at += 12 + size;
  }
  std::string out(bytes, '\0');
  uLongf length = bytes;
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(out.data()), &length,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  EXPECT_EQ(length, bytes);
  return out;
}

TEST(Media, PicturesHaveTheirSizeAndDifferBySeed) {
  for (const auto& [width, height] : {std::pair{832U, 480U}, {1U, 1U}, {7U, 1000U}, {4096U, 3U}}) {
    const std::string picture = test_picture(width, height, 5);
    EXPECT_EQ(picture_size(picture), (std::array{width, height}));
    for (const char pixel : pixels(picture, (width + 1UL) * height)) EXPECT_LE(pixel, 7);
  }
  EXPECT_NE(test_picture(64, 64, 1), test_picture(64, 64, 2));
}

TEST(Media, AllFramesOfAVideoAreItsPicture) {
  const std::string picture = test_picture(832, 480, 1), video = test_video(832, 480, 1, 81, 16);
  const std::size_t offsets = video.find("stco");
  ASSERT_NE(offsets, std::string::npos);
  ASSERT_EQ(number(video, offsets + 8), 81U);
  for (std::size_t i = 0; i < 81; ++i)
    EXPECT_EQ(video.substr(number(video, offsets + 12 + 4 * i), picture.size()), picture);
  // Boxes fill the file.
  std::size_t at = 0;
  while (at < video.size()) at += number(video, at);
  EXPECT_EQ(at, video.size());
}

TEST(Media, SizesOfJpegsAndOfWhatIsNone) {
  using namespace std::string_view_literals;
  EXPECT_EQ(picture_size("\xff\xd8\xff\xe0\x00\x04JF\xff\xc2\x00\x0b\x08\x01\xe0\x03\x40\x01"sv),
            (std::array{832U, 480U}));
  for (const std::string_view file : {""sv, "\xff\xd8"sv, "\xff\xd8\xff\xc0\x00"sv,
                                      "\xff\xd8\xff\xe0\x00\x00"sv, "GIF89a"sv, "\x89PNG\r\n\x1a\n"sv})
    EXPECT_EQ(picture_size(file), std::nullopt);
}

}  // namespace tpsim::launch::media_test
