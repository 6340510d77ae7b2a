#include "launch/report/report_dir.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "proto/error.h"

namespace tpsim::launch {

ReportFile::ReportFile(std::filesystem::path final_path, std::string flag)
    : final_path_(std::move(final_path)),
      flag_(std::move(flag)),
      temporary_path_(final_path_.string() + ".tmp." + std::to_string(getpid())),
      file_(std::fopen(temporary_path_.c_str(), "wb")) {
  check(file_ != nullptr);
}

ReportFile::~ReportFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::error_code ignored;
  std::filesystem::remove(temporary_path_, ignored);
}

void ReportFile::check(bool good) const {
  if (good) return;
  throw_user_error("{} {}: {} cannot be written: {}", flag_, final_path_.parent_path().string(),
                   final_path_.filename().string(), std::strerror(errno));
}

void ReportFile::write(std::string_view bytes) {
  check(std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size());
}

void ReportFile::commit() {
  check(std::fflush(file_) == 0);
  std::FILE* file = std::exchange(file_, nullptr);
  check(std::fclose(file) == 0);
  std::error_code error;
  std::filesystem::rename(temporary_path_, final_path_, error);
  if (error) {
    std::filesystem::remove(temporary_path_, error);
    throw_user_error("{} {}: {} cannot be put in place", flag_, final_path_.parent_path().string(),
                     final_path_.filename().string());
  }
}

ReportDir::ReportDir(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  if (std::filesystem::exists(folder_, error) && !std::filesystem::is_directory(folder_, error)) {
    throw_user_error("--report-dir {}: this is a file; name a folder", folder_.string());
  }
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw_user_error("--report-dir {}: the folder cannot be made: {}", folder_.string(), error.message());
  }
  if (access(folder_.c_str(), W_OK | X_OK) != 0) {
    throw_user_error("--report-dir {}: the folder cannot be written to; name one that can", folder_.string());
  }
}

ReportFile& ReportDir::open(const std::string& name) {
  files_.push_back(std::make_unique<ReportFile>(folder_ / name));
  return *files_.back();
}

void ReportDir::commit_all() {
  for (const auto& file : files_) file->commit();
  files_.clear();
}

}  // namespace tpsim::launch
