// --output-file: one JSON line for each run, appended, with the keys of SGLang's serving benchmark.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "proto/report.pb.h"

namespace tpsim::launch {

// What the benchmark writes into a line of its result file (benchmark/serving.py of 0.5.23), as far as a
// simulation knows it: `backend` is "tpsim", `server_info` what was simulated, `accept_length` null; tokens
// are never retokenized. An unlimited request_rate is the text "inf". A run that stopped early has one key
// more.
nlohmann::ordered_json benchmark_result(const proto::RunReport& report);

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
