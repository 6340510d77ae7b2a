// The folder of --report-dir (or of a flag like it), whose files appear together when the last of them is
// complete: nothing half-written is ever found under a report's name, and what was there before stays where a
// run fails.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/output_file.h"

namespace tpsim::launch {

class ReportDir {
 public:
  // Makes the folder (and its parents). Throws UserError naming `flag` where that cannot be, or where it
  // cannot be written to.
  explicit ReportDir(std::filesystem::path folder, std::string flag = "--report-dir");

  const std::filesystem::path& path() const { return folder_; }
  // A file that commit_all() puts in place together with the others. Throws UserError where `name` is a
  // folder or cannot be written.
  OutputFile& open(const std::string& name);
  // A file that this report does not have; commit_all() removes what an earlier report left under the name.
  void leave_out(const std::string& name) { left_out_.push_back(name); }
  // Throws UserError where a file cannot be completed (a full disk); none has changed then.
  void commit_all();

 private:
  std::filesystem::path folder_;
  std::string flag_;
  std::vector<std::unique_ptr<OutputFile>> files_;
  std::vector<std::string> left_out_;
};

}  // namespace tpsim::launch
