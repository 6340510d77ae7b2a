// The folder of --report-dir. Files are written beside their final name and moved into place only when they
// are complete, so that nothing half-written is ever found under a report's name.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

class ReportFile {
 public:
  // Throws UserError naming `flag` where the file cannot be made.
  explicit ReportFile(std::filesystem::path final_path, std::string flag = "--report-dir");
  // Removes what was not committed.
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  // Throws UserError where the disk is full.
  void write(std::string_view bytes);
  // Flushes and moves the file into place.
  void commit();

 private:
  void check(bool good) const;
  std::filesystem::path final_path_;
  std::string flag_;
  std::filesystem::path temporary_path_;
  std::FILE* file_;
};

class ReportDir {
 public:
  // Makes the folder (and its parents). Throws UserError naming --report-dir where that cannot be, or where
  // it cannot be written to.
  explicit ReportDir(std::filesystem::path folder);

  const std::filesystem::path& path() const { return folder_; }
  // A file that commit_all() moves into place together with the others.
  ReportFile& open(const std::string& name);
  void write(const std::string& name, std::string_view bytes) { open(name).write(bytes); }
  void commit_all();

 private:
  std::filesystem::path folder_;
  std::vector<std::unique_ptr<ReportFile>> files_;
};

}  // namespace tpsim::launch
