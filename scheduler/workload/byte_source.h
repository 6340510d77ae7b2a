// Where the bytes of a trace come from: a file or memory, plain or gzip-compressed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace tpsim::scheduler {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills up to `capacity` bytes and returns how many; 0 only at the end. REQUIRES: capacity > 0.
  // Throws UserError where the bytes cannot be had.
  virtual std::size_t read(char* out, std::size_t capacity) = 0;
};

// Throws UserError for a missing or unreadable file and for anything that is not a regular file or a pipe.
std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);

// REQUIRES: `bytes` outlives the source.
std::unique_ptr<ByteSource> open_memory(std::string_view bytes);

// Decompresses `raw` if it starts as gzip does, and passes it through if not. Damaged or truncated gzip data
// throws UserError that starts with `name`, when the damage is reached.
std::unique_ptr<ByteSource> decode(std::unique_ptr<ByteSource> raw, std::string name);

}  // namespace tpsim::scheduler
