#include "launch/report/report_dir.h"

#include <unistd.h>

#include <system_error>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::launch {

ReportDir::ReportDir(std::filesystem::path folder, std::string flag)
    : folder_(std::move(folder)), flag_(std::move(flag)) {
  std::error_code error;
  if (std::filesystem::exists(folder_, error) && !std::filesystem::is_directory(folder_, error)) {
    throw_user_error("{} {}: this is a file; name a folder", flag_, folder_.string());
  }
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw_user_error("{} {}: the folder cannot be made: {}", flag_, folder_.string(), error.message());
  }
  if (access(folder_.c_str(), W_OK | X_OK) != 0) {
    throw_user_error("{} {}: the folder cannot be written to; name one that can", flag_, folder_.string());
  }
}

OutputFile& ReportDir::open(const std::string& name) {
  files_.push_back(std::make_unique<OutputFile>(
      folder_ / name, fmt::format("{} {}: {}", flag_, folder_.string(), name), OutputFile::kFastGzip));
  return *files_.back();
}

void ReportDir::commit_all() {
  for (const auto& file : files_) file->finish();
  for (const auto& file : files_) file->commit();
  files_.clear();
  for (const std::string& name : left_out_) {
    std::error_code error;
    if (std::filesystem::is_regular_file(std::filesystem::symlink_status(folder_ / name, error)))
      std::filesystem::remove(folder_ / name, error);
  }
}

}  // namespace tpsim::launch
