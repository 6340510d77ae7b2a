#include "launch/serve/pipelines/media.h"

#include <zlib.h>

#include <algorithm>
#include <initializer_list>

namespace tpsim::launch {
namespace {

void append_big_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}
std::string big_endian(std::uint64_t value, int bytes) {
  std::string out;
  append_big_endian(out, value, bytes);
  return out;
}
std::uint32_t read_big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_big_endian(out, data.size(), 4);
  const std::size_t begin = out.size();
  out.append(type).append(data);
  const auto* const bytes = reinterpret_cast<const Bytef*>(out.data() + begin);
  append_big_endian(out, crc32(0, bytes, static_cast<uInt>(out.size() - begin)), 4);
}

// The rows of a picture, each behind its filter's byte (0: none), packed. Rows come in two kinds, so a
// picture is never held unpacked.
std::string packed_rows(std::uint32_t height, std::uint32_t border, const std::string& plain,
                        const std::string& bars) {
  z_stream stream{};
  deflateInit(&stream, Z_BEST_SPEED);
  std::string out;
  char buffer[1 << 14];
  const auto deflate_all = [&](std::string_view row, int flush) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(row.data()));  // zlib only reads it
    stream.avail_in = static_cast<uInt>(row.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer);
      stream.avail_out = sizeof buffer;
      deflate(&stream, flush);
      out.append(buffer, sizeof buffer - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  for (std::uint32_t y = 0; y < height; ++y)
    deflate_all(y < border || y + border >= height ? plain : bars, Z_NO_FLUSH);
  deflate_all({}, Z_FINISH);
  deflateEnd(&stream);
  return out;
}

// A box of ISO/IEC 14496-12: length, type, content.
std::string box(std::string_view type, std::initializer_list<std::string> parts) {
  std::size_t size = 8;
  for (const std::string& part : parts) size += part.size();
  std::string out = big_endian(size, 4).append(type);
  for (const std::string& part : parts) out += part;
  return out;
}
std::string zeros(std::size_t bytes) { return std::string(bytes, '\0'); }
const std::string& unity_matrix() {
  static const std::string matrix =
      big_endian(0x10000, 4) + zeros(12) + big_endian(0x10000, 4) + zeros(12) + big_endian(0x40000000, 4);
  return matrix;
}

// The descriptor of ISO/IEC 14496-1 that names the coding: pictures in PNG.
std::string elementary_stream() {
  constexpr char kPng = 0x6d, kVisual = 4 << 2 | 1;
  const std::string config = std::string{kPng, kVisual} + zeros(11);
  const std::string decoder = std::string{4, static_cast<char>(config.size())} + config;
  const std::string sync = std::string{6, 1, 2};
  const std::string body = zeros(3) + decoder + sync;
  return box("esds", {zeros(4), std::string{3, static_cast<char>(body.size())}, body});
}

std::string sample_entry(std::uint32_t width, std::uint32_t height) {
  return box("mp4v", {zeros(6), big_endian(1, 2), zeros(16), big_endian(width, 2), big_endian(height, 2),
                      big_endian(0x480000, 4), big_endian(0x480000, 4), zeros(4), big_endian(1, 2), zeros(32),
                      big_endian(24, 2), big_endian(0xffff, 2), elementary_stream()});
}

// Where `frames` samples of `bytes` bytes lie: all at `offset`.
std::string sample_table(std::uint32_t width, std::uint32_t height, std::uint32_t frames, std::size_t bytes,
                         std::uint64_t offset) {
  std::string offsets;
  for (std::uint32_t i = 0; i < frames; ++i) append_big_endian(offsets, offset, 4);
  const std::string one = big_endian(1, 4), count = big_endian(frames, 4);
  return box("stbl",
             {box("stsd", {zeros(4), one, sample_entry(width, height)}),
              box("stts", {zeros(4), one, count, one}), box("stsc", {zeros(4), one, one, one, one}),
              box("stsz", {zeros(4), big_endian(bytes, 4), count}), box("stco", {zeros(4), count, offsets})});
}

// Times in frames; `fps` of them are a second.
std::string movie(std::uint32_t width, std::uint32_t height, std::uint32_t frames, std::uint32_t fps,
                  std::size_t bytes, std::uint64_t offset) {
  const std::string one = big_endian(1, 4), length = big_endian(frames, 4);
  const std::string media_times = zeros(12) + big_endian(fps, 4) + length;
  const std::string handler = box("hdlr", {zeros(8), "vide", zeros(12), std::string("tpsim\0", 6)});
  const std::string data = box("dinf", {box("dref", {zeros(4), one, box("url ", {one})})});
  const std::string information =
      box("minf", {box("vmhd", {one, zeros(8)}), data, sample_table(width, height, frames, bytes, offset)});
  const std::string track =
      box("tkhd", {big_endian(7, 4), zeros(8), one, zeros(4), length, zeros(16), unity_matrix(),
                   big_endian(width, 2), zeros(2), big_endian(height, 2), zeros(2)});
  const std::string header = box("mvhd", {media_times, big_endian(0x10000, 4), big_endian(0x100, 2),
                                          zeros(10), unity_matrix(), zeros(24), big_endian(2, 4)});
  return box(
      "moov",
      {header, box("trak", {track, box("mdia", {box("mdhd", {media_times, big_endian(0x55c4, 2), zeros(2)}),
                                                handler, information})})});
}

// Of a JPEG, from the first frame header (SOF0 to SOF15, but DHT, JPG and DAC, which share their range).
std::optional<std::array<std::uint32_t, 2>> jpeg_size(std::string_view file) {
  for (std::size_t at = 2; at + 9 <= file.size();) {
    const auto marker = static_cast<unsigned char>(file[at + 1]);
    if (static_cast<unsigned char>(file[at]) != 0xff) return std::nullopt;
    if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc)
      return std::array{read_big_endian(file.substr(at + 7, 2)), read_big_endian(file.substr(at + 5, 2))};
    at += 2 + read_big_endian(file.substr(at + 2, 2));
  }
  return std::nullopt;
}

}  // namespace

std::string test_picture(std::uint32_t width, std::uint32_t height, std::uint64_t seed) {
  // The 75 % bars of SMPTE's test pictures, and a border.
  constexpr std::uint32_t kBars[] = {0xbfbfbf, 0xbfbf00, 0x00bfbf, 0x00bf00, 0xbf00bf, 0xbf0000, 0x0000bf};
  constexpr std::uint32_t kBorder = 0x202020, kNumBars = std::size(kBars);
  std::string palette;
  for (const std::uint32_t colour : kBars) append_big_endian(palette, colour, 3);
  append_big_endian(palette, kBorder, 3);
  const std::uint32_t border = std::max<std::uint32_t>(1, std::min(width, height) / 32);
  std::string bars(1 + std::size_t{width}, '\0'), plain = bars;
  for (std::uint32_t x = 0; x < width; ++x) {
    const bool edge = x < border || x + border >= width;
    const auto bar = (std::uint64_t{x} * kNumBars / width + seed % kNumBars) % kNumBars;
    bars[1 + x] = static_cast<char>(edge ? kNumBars : bar);
    plain[1 + x] = kNumBars;
  }
  std::string out(kPngSignature);
  append_chunk(out, "IHDR", big_endian(width, 4) + big_endian(height, 4) + std::string{8, 3, 0, 0, 0});
  append_chunk(out, "PLTE", palette);
  append_chunk(out, "IDAT", packed_rows(height, border, plain, bars));
  append_chunk(out, "IEND", {});
  return out;
}

std::string test_video(std::uint32_t width, std::uint32_t height, std::uint64_t seed, std::uint32_t frames,
                       std::uint32_t fps) {
  const std::string picture = test_picture(width, height, seed);
  const std::string type = box("ftyp", {"isom", big_endian(0x200, 4), "isommp41"});
  // The movie's length does not depend on where its samples are.
  const std::uint64_t before = type.size() + movie(width, height, frames, fps, picture.size(), 0).size() + 8;
  return type + movie(width, height, frames, fps, picture.size(), before) + box("mdat", {picture});
}

std::optional<std::array<std::uint32_t, 2>> picture_size(std::string_view file) {
  if (file.starts_with(kPngSignature) && file.size() >= 24)
    return std::array{read_big_endian(file.substr(16, 4)), read_big_endian(file.substr(20, 4))};
  if (file.starts_with("\xff\xd8")) return jpeg_size(file);
  return std::nullopt;
}

}  // namespace tpsim::launch
