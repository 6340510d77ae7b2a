// Test pictures: what a server of a simulated pipeline hands out, of the size that was asked for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tpsim::launch {

// Colour bars as a PNG; `seed` turns the colours, so that pictures of two prompts differ.
std::string test_picture(std::uint32_t width, std::uint32_t height, std::uint64_t seed);

// The same picture as an MP4 of `frames` frames, `fps` a second: a track of PNGs (MPEG-4's object type 0x6d,
// which FFmpeg and VLC play) whose samples all lie at one place.
std::string test_video(std::uint32_t width, std::uint32_t height, std::uint64_t seed, std::uint32_t frames,
                       std::uint32_t fps);

// Width and height of a PNG or JPEG file, as its header says; none: it is neither.
std::optional<std::array<std::uint32_t, 2>> picture_size(std::string_view file);

}  // namespace tpsim::launch
