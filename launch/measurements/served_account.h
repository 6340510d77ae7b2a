// A server's account as the flags of a load.
#pragma once

#include <filesystem>

#include "launch/measurements/measured_load.h"
#include "launch/measurements/measurement_formats.h"
#include "launch/measurements/server_account.h"

namespace tpsim::launch {

// A file with the answer of /get_server_info. Throws UserError.
ServerAccount read_account_file(const std::filesystem::path& path);

// Sets what `load` is grouped by, its flags and its pool.
void add_server_flags(const ServerAccount& account, const MeasurementFile& file, MeasuredLoad& load);

}  // namespace tpsim::launch
