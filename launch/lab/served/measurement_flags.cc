#include "launch/lab/served/measurement_flags.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "launch/cli/flag_values.h"
#include "proto/base/error.h"

namespace tpsim::launch {

void declare_traces(FlagSet& flags, MeasurementOptions& options) {
  flags.add_value("--traces", "DIR",
                  "where slices of traces are looked for, whose prompts share prefixes (default: ../traces "
                  "beside the folder of the measurements)",
                  [&options](std::string_view flag, const std::string& value) {
                    std::string folder;
                    text(folder)(flag, value);
                    std::error_code error;
                    if (!std::filesystem::is_directory(folder, error))
                      throw_user_error("{} {}: is not a folder", flag, value);
                    options.traces = folder;
                  });
}

}  // namespace tpsim::launch
