#include "launch/flags/logging.h"

#include <fmt/ranges.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace tpsim::launch {

void set_up_logging(const ServerArgs& args, bool speaks) {
  const auto logger =
      std::make_shared<spdlog::logger>("tpsim", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("tpsim: %l: %v");
  logger->set_level(speaks ? spdlog::level::from_str(args.log_level) : spdlog::level::off);
  spdlog::set_default_logger(logger);
  if (!args.ignored_flags.empty()) {
    spdlog::warn("{}", fmt::format("{}: {} nothing to a simulation", fmt::join(args.ignored_flags, ", "),
                                   args.ignored_flags.size() == 1 ? "means" : "mean"));
  }
}

}  // namespace tpsim::launch
