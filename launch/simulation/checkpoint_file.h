// The file of --checkpoint and --resume: a version, bytes, and a hash of them.
//
// It is replaced as a whole: a process that is killed leaves what was there before or the new bytes. While a
// process has one, no other one can.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "proto/base/hash.h"

namespace tpsim::launch {

// What the file holds around `body`, whose hash is `hash`: before it and after it.
std::string checkpoint_head();
std::string checkpoint_tail(const ByteHash& hash);
// The body of the text of a file. Throws UserError "--resume FILE: …" for what is none, of another version or
// damaged.
std::string_view checkpoint_body(std::string_view text, const std::string& file);

class CheckpointFile {
 public:
  // A new one, and with `resume` one that is there. Throws UserError where it cannot be, or is another run's.
  CheckpointFile(std::filesystem::path path, bool resume);
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Whether there is one to go on from.
  bool there() const { return there_; }
  // Throws UserError where it cannot be read.
  std::string text() const;

  // New bytes: begin(), write() as often as need be, then commit(), which returns whether they took the place
  // of the old ones. Where not, these stay, and trouble() says why.
  void begin();
  void write(std::string_view bytes);
  bool commit();
  const std::string& trouble() const { return trouble_; }

  // The bytes are of no use any more.
  void remove();

 private:
  std::filesystem::path temporary() const { return path_.string() + ".tmp"; }
  void put(std::string_view bytes);
  void note_trouble();

  std::filesystem::path path_;
  bool there_;
  int lock_ = -1;     // what keeps others away: the file that is there, or else the first new bytes
  int written_ = -1;  // the new bytes
  ByteHash hash_;
  std::string trouble_;  // of the bytes since begin()
};

}  // namespace tpsim::launch
