// --output-file: one JSON line for each run, appended, with the keys of SGLang's serving benchmark.
#pragma once

#include <string>

#include "proto/report.pb.h"

namespace tpsim::launch {

class ResultFile {
 public:
  // "": no file, write() does nothing. Throws UserError, naming --output-file, for a path that cannot be
  // appended to; nothing is created yet.
  explicit ResultFile(std::string path);
  // Makes the line of `report`.
  void add(const proto::RunReport& report);
  // Appends the lines, all or none: after the report, which must not be lost where this fails. Throws
  // UserError where they cannot be written.
  void write() const;

 private:
  std::string path_;
  std::string lines_;
};

}  // namespace tpsim::launch
