// The report of `tpsim validate`: all rows, and what they come to.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/validation.pb.h"

namespace tpsim::launch {

// Settings closer than this in a measurement are not told apart.
inline constexpr double kTie = 0.03;

// `rows` in the order of the measurements. Refused ones go to not_asked, what they carry for the page stays
// on them.
proto::Validation make_validation(std::vector<proto::ValidatedRow> rows);

// As validation.json holds it: without what is for the page.
nlohmann::ordered_json validation_json(proto::Validation validation);

// For a terminal.
std::string validation_table(const proto::Validation& validation, bool colour);

// validation.html: one page that opens offline.
std::string validation_page(const proto::Validation& validation);

}  // namespace tpsim::launch
